"""Coded video as a container holds it: what its packets are, and their bytes in the form an episode file holds.

`read_facts` reads every packet once, without decoding; `copied_packets` reads them again and gives the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import av

from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.nal import (
    AVCC_VERSION,
    PPS,
    SPS,
    AccessUnit,
    AnnexBWriter,
    BadBitstream,
    Nal,
    join_annexb,
    parse_avcc,
    parse_pps,
    read_access_unit,
    split_annexb,
    split_avcc,
)
from dyna_train.video.pixels import UPRIGHT, is_limited, orientation_of
from dyna_train.video.sps import UNSPECIFIED, Sps, parse_sps

H264 = "h264"
_PROFILES = {66: "Baseline", 77: "Main", 88: "Extended", 100: "High", 244: "High 4:4:4"}


@dataclass(frozen=True, slots=True)
class Appearance:
    """How a decoder that the container feeds shows its frames; colour codes of ITU-T H.273.

    is_turned: a display matrix rotates or mirrors the picture.
    """

    width: int
    height: int
    full_range: bool = False
    matrix: int = UNSPECIFIED
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    is_turned: bool = False

    @classmethod
    def of(cls, frame: av.VideoFrame) -> Appearance:
        """The appearance of a decoded frame. Raises BadInput for a display matrix that nobody can follow."""
        return cls(
            frame.width,
            frame.height,
            full_range=not is_limited(frame),
            matrix=frame.colorspace,
            primaries=frame.color_primaries,
            transfer=frame.color_trc,
            is_turned=orientation_of(frame) != UPRIGHT,
        )


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a container. pts: when it is shown, in any unit.

    is_keyframe: what the container says. is_discard: decoded, but not shown. extradata: parameter sets of
    the container that hold from this packet on; empty where they stay.
    """

    data: bytes
    pts: int
    is_keyframe: bool = False
    is_discard: bool = False
    extradata: bytes = b""


@dataclass(frozen=True, slots=True)
class CodedVideo:
    """The coded pictures of one camera. codec: FFmpeg's name of the format. extradata: the container's.

    packets: gives them anew at every call, in decoding order, from the first one that is shown.
    """

    codec: str
    extradata: bytes
    appearance: Appearance
    packets: Callable[[], Iterator[Packet]]


@dataclass(frozen=True, slots=True)
class PacketFacts:
    """One packet. kinds: the types of its slices, each once ('I', 'P', 'BP'); has_sets: nothing it needs lacks.

    break_: why it does not follow the packet before it, '' if it does.
    """

    pts: int
    num_bytes: int
    num_frames: int
    kinds: str
    is_idr: bool
    is_keyframe: bool
    is_discard: bool
    has_sets: bool
    break_: str = ""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What `read_facts` found. sps: (number of the packet from which it holds, parameter set), in that order.

    fault: why the packets could not be read to their end, '' if they were.
    """

    codec: str
    appearance: Appearance
    sps: tuple[tuple[int, Sps], ...] = ()
    packets: tuple[PacketFacts, ...] = ()
    fault: str = ""

    def describe(self) -> str:
        """The source's encoding in one line, for the channel metadata."""
        if not self.sps:
            return self.codec
        sps = self.sps[0][1]
        profile = _PROFILES.get(sps.profile_idc, f"profile {sps.profile_idc}")
        return f"{self.codec} {profile} level {sps.level_idc / 10:.1f} {sps.width}x{sps.height}"


def read_facts(video: CodedVideo) -> StreamFacts:
    """Look at every packet without decoding one; holds no packet. Raises what the packets' source raises."""
    if video.codec != H264:
        return StreamFacts(video.codec, video.appearance)
    sets: list[tuple[int, Sps]] = []
    packets: list[PacketFacts] = []
    last_sps: list[bytes] = []
    pps_ids: set[int] = set()
    numbers = FrameNumbers()
    fault = ""
    try:
        for packet, _, nals in _annexb_units(video):
            unit = read_access_unit(nals)
            pps_ids |= {parse_pps(nal.data)[0] for nal in unit.of_type(PPS)}
            found = [bytes(nal.data) for nal in unit.of_type(SPS)]
            if unit.is_idr and found != last_sps:
                sets += [(len(packets), parse_sps(sps)) for sps in found]
                last_sps = found
            packets.append(_facts(packet, unit, pps_ids, numbers.fault(unit)))
    except BadBitstream as error:
        fault = f"packet {len(packets)}: {error}"
    return StreamFacts(video.codec, video.appearance, tuple(sets), tuple(packets), fault)


def copied_packets(video: CodedVideo, frames: range) -> Iterator[tuple[int, bytes]]:
    """(pts, Annex B bytes) of the packets with these numbers, of a stream without a fault.

    The bytes are the source's; an IDR picture without its parameter sets gets them in front.
    """
    is_annexb = _is_annexb(video)
    for number, (packet, source, nals) in enumerate(_annexb_units(video)):
        if number == frames.stop:
            return
        if number in frames:
            yield packet.pts, packet.data if is_annexb and nals is source else join_annexb(nals)


def _annexb_units(video: CodedVideo) -> Iterator[tuple[Packet, Sequence[Nal], Sequence[Nal]]]:
    """Every packet, its NAL units, and those with its parameter sets (the same object if nothing lacked)."""
    avcc = None if _is_annexb(video) else parse_avcc(video.extradata)
    if avcc is None:
        writer = AnnexBWriter(split_annexb(video.extradata) if video.extradata else ())
    else:
        writer = AnnexBWriter(avcc.parameter_sets)
    for packet in video.packets():
        if packet.extradata not in (b"", video.extradata):
            raise BadBitstream("its container changes the parameter sets here")
        nals = split_annexb(packet.data) if avcc is None else split_avcc(packet.data, avcc.length_bytes)
        yield packet, nals, writer.convert(nals)


def _is_annexb(video: CodedVideo) -> bool:
    return video.extradata[:1] != bytes([AVCC_VERSION])


def _facts(packet: Packet, unit: AccessUnit, pps_ids: set[int], break_: str) -> PacketFacts:
    is_idr = unit.is_idr
    return PacketFacts(
        pts=packet.pts,
        num_bytes=len(packet.data),
        num_frames=unit.num_frames,
        kinds=unit.kinds,
        is_idr=is_idr,
        is_keyframe=packet.is_keyframe,
        is_discard=packet.is_discard,
        has_sets=(unit.has_parameter_sets or not is_idr)
        and all(part.pps_id in pps_ids for part in unit.slices),
        break_=break_,
    )
