"""Which H.264 streams an episode file can hold as they are (pure).

A copy costs a hundredth of decoding and encoding, and loses nothing. It is refused with the first reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dyna_train.video.coded import H264, Appearance, PacketFacts, StreamFacts
from dyna_train.video.pixels import MATRICES
from dyna_train.video.sps import UNSPECIFIED, Sps


def copy_fault(
    facts: StreamFacts, frames_T: NDArray[np.int64], *, size: tuple[int, int], most_gop: int
) -> str | None:
    """Why this stream cannot be copied into an episode of T >= 1 steps; None if it can.

    frames_T: int64 [T], number of the source frame, in order of presentation, that each step shows.
    size: (width, height) of the camera. most_gop: the longest GOP allowed, in frames.
    """
    return (
        _unreadable(facts)
        or _wrong_pictures(facts, size)
        or _wrong_packets(facts.packets)
        or _wrong_steps(facts.packets, frames_T)
        or _wrong_gops(facts.packets, range(int(frames_T[0]), int(frames_T[-1]) + 1), most_gop)
    )


def gop_of(facts: StreamFacts, frames_T: NDArray[np.int64]) -> int:
    """Frames from the first keyframe that is used to the next, of a stream without a fault.

    The number of frames used, if no other keyframe is among them.
    """
    first, last = int(frames_T[0]), int(frames_T[-1])
    return next((n for n in range(1, last - first + 1) if facts.packets[first + n].is_idr), last - first + 1)


def _unreadable(facts: StreamFacts) -> str | None:
    if facts.codec != H264:
        return f"the source is {facts.codec}, not {H264}"
    if facts.fault:
        return f"no H.264 that can be taken apart: {facts.fault}"
    if not facts.packets:
        return "the source holds no packet"
    if not facts.sps:
        return "no keyframe comes with its parameter sets"
    return None


def _wrong_pictures(facts: StreamFacts, size: tuple[int, int]) -> str | None:
    """What the parameter sets say of every picture, and what the container adds."""
    if len(facts.sps) > 1:
        return f"the parameter sets change, or are several, at packet {facts.sps[1][0]}"
    sps, shown = facts.sps[0][1], facts.appearance
    if (sps.chroma_format_idc, sps.bit_depth_luma, sps.bit_depth_chroma) != (1, 8, 8):
        return f"{sps.chroma} with {sps.bit_depth_luma} bits, expected 4:2:0 with 8 bits"
    if not sps.frame_mbs_only:
        return "coded for interlaced fields"
    if shown.is_turned:
        return "its container turns the picture (display matrix)"
    if sps.vui.full_range or shown.full_range:
        return "full range, expected limited range"
    if sps.vui.matrix not in (UNSPECIFIED, *MATRICES):
        return f"colour matrix {sps.vui.matrix}, expected one of {sorted(MATRICES)} or none"
    return _wrong_container(sps, shown, size)


def _wrong_container(sps: Sps, shown: Appearance, size: tuple[int, int]) -> str | None:
    """What would be lost with the container, or shown differently without it."""
    stated = (shown.matrix, shown.primaries, shown.transfer)
    coded = (sps.vui.matrix, sps.vui.primaries, sps.vui.transfer)
    if stated != coded:
        return f"its container shows colours {stated} where the stream says {coded} (matrix, primaries, transfer)"
    if sps.crop[0] or sps.crop[2]:
        return f"cropped at the left or top by {sps.crop[0]} and {sps.crop[2]} pixels"
    # 4:2:0 has no odd sizes: its container crops the last row or column of an odd camera, and so do we.
    even = (size[0] + size[0] % 2, size[1] + size[1] % 2)
    if (shown.width, shown.height) != size or (sps.width, sps.height) != even:
        return (
            f"pictures of {sps.width}x{sps.height}, shown as {shown.width}x{shown.height}; "
            f"the camera has {size[0]}x{size[1]}"
        )
    return None


def _wrong_packets(packets: Sequence[PacketFacts]) -> str | None:
    """Packets that are not one frame each, shown in their order, every one predicted from earlier ones."""
    last_pts: int | None = None
    for number, packet in enumerate(packets):
        if packet.is_discard:
            return f"packet {number} is not shown (edit list)"
        if packet.num_frames != 1:
            return f"packet {number} holds {packet.num_frames} frames, expected 1"
        if set(packet.kinds) - set("IP"):
            return f"packet {number} holds {packet.kinds} slices (B-frames)"
        if packet.break_:
            return f"packet {number} has {packet.break_}"
        if last_pts is not None and packet.pts <= last_pts:
            return f"packet {number} is shown before packet {number - 1}: not in order of presentation"
        last_pts = packet.pts
    return None


def _wrong_steps(packets: Sequence[PacketFacts], frames_T: NDArray[np.int64]) -> str | None:
    """Steps that do not show one new frame each."""
    wanted_T = frames_T[0] + np.arange(len(frames_T))
    wrong = np.nonzero(frames_T != wanted_T)[0]
    if len(wrong):
        step = int(wrong[0])
        return (
            f"step {step} shows frame {frames_T[step]} of the source, expected {wanted_T[step]}: "
            "not one new frame for each step"
        )
    if frames_T[-1] >= len(packets):
        return f"the last step shows frame {frames_T[-1]} of the source, it has {len(packets)} packets"
    return None


def _wrong_gops(packets: Sequence[PacketFacts], used: range, most_gop: int) -> str | None:
    """GOPs that are open, bare, too long, or not of one length from the first frame that is used."""
    open_gop = next((n for n in used if packets[n].is_keyframe and not packets[n].is_idr), None)
    if open_gop is not None:
        return f"packet {open_gop} is a keyframe but no IDR picture (open GOP)"
    if not packets[used.start].is_idr:
        return f"the first frame that is used, {used.start} of the source, is no keyframe"
    bare = next((n for n in used if not packets[n].has_sets), None)
    if bare is not None:
        return f"packet {bare} comes without its parameter sets"
    starts = [number for number in used if packets[number].is_idr] + [used.stop]
    lengths = [end - start for start, end in pairwise(starts)]
    if lengths[0] > most_gop:
        return f"a GOP of {lengths[0]} frames, expected at most {most_gop}"
    for start, length in zip(starts, lengths, strict=False):
        is_last = start + length == used.stop
        if length > lengths[0] or (length < lengths[0] and not is_last):
            return f"a GOP of {length} frames at packet {start}, the first one has {lengths[0]}"
    return None
