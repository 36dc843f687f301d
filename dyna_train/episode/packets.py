"""What an episode file asks of the packets of a camera that is copied, not encoded here."""

from __future__ import annotations

from dyna_train.episode.tracks import CameraTrack
from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.nal import SPS, AccessUnit, BadBitstream, parse_access_unit
from dyna_train.video.sps import parse_sps, plain_pictures


class PacketRules:
    """Looks at the packets of one camera, in order of their steps."""

    def __init__(self, track: CameraTrack, gop: int) -> None:
        self._track = track
        self._gop = gop
        self._numbers = FrameNumbers()

    def fault(self, packet: object, *, starts_gop: bool) -> str:
        """Why the next packet cannot stand in the file, '' if it can. starts_gop: it is the first of a GOP."""
        if not isinstance(packet, bytes | bytearray | memoryview):
            return f"expected the bytes of a frame, found {type(packet).__name__}"
        try:
            unit = parse_access_unit(packet)
            pictures = [parse_sps(nal.data).pictures for nal in unit.of_type(SPS)]
        except BadBitstream as error:
            return f"{error}"
        return (
            self._wrong_structure(unit, starts_gop)
            or self._wrong_pictures(pictures)
            or self._numbers.fault(unit)
        )

    def _wrong_structure(self, unit: AccessUnit, starts_gop: bool) -> str:
        is_key = unit.is_idr and unit.has_parameter_sets
        if unit.num_frames != 1 or unit.is_idr != starts_gop or (starts_gop and not is_key):
            expected = "an IDR picture with SPS and PPS" if starts_gop else "a picture that is no IDR"
            return (
                f"expected one frame, {expected} (GOP {self._gop}); found {unit.num_frames} frames with NAL "
                f"units {[nal.type for nal in unit.nals]}"
            )
        if set(unit.kinds) - set("IP"):
            return f"expected I and P slices only, found {unit.kinds}; encode it anew (add_frame)"
        return ""

    def _wrong_pictures(self, found: list[str]) -> str:
        """What the parameter sets of this packet say of the pictures."""
        expected = plain_pictures(self._track.width, self._track.height)
        wrong = next((pictures for pictures in found if pictures != expected), None)
        return f"expected {expected}; found {wrong}; encode it anew (add_frame)" if wrong else ""
