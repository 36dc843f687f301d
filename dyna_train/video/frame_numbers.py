"""Whether the pictures of an H.264 stream follow each other, by the numbers in their headers (pure).

Every reference picture raises `frame_num` by one (7.4.3). A decoder hides a break: where a picture was taken out
it shows the next ones, wrong, and says nothing.
"""

from __future__ import annotations

from dyna_train.video.nal import PPS, SPS, AccessUnit, BadBitstream, parse_pps, read_frame_num
from dyna_train.video.sps import Sps, parse_sps


class FrameNumbers:
    """Follows the pictures of one stream, in decoding order."""

    def __init__(self) -> None:
        self._sps: dict[int, Sps] = {}
        self._sps_of_pps: dict[int, int] = {}
        self._next: int | None = None

    def fault(self, unit: AccessUnit) -> str:
        """Why the next picture of the stream is not the one that belongs here; '' if it is.

        '' too before the first IDR picture and for a picture whose parameter sets never came. After a break it
        goes on from the picture that was found, so that one break is told once.
        """
        try:
            self._note_sets(unit)
            return self._fault(unit)
        except BadBitstream as error:
            return str(error)

    def _note_sets(self, unit: AccessUnit) -> None:
        for nal in unit.nals:
            if nal.type == SPS:
                sps = parse_sps(nal.data)
                self._sps[sps.set_id] = sps
            elif nal.type == PPS:
                pps_id, sps_id = parse_pps(nal.data)
                self._sps_of_pps[pps_id] = sps_id

    def _fault(self, unit: AccessUnit) -> str:
        nal = unit.first_slice
        if nal is None:
            return ""
        first = unit.slices[0]
        sps = self._sps.get(self._sps_of_pps.get(first.pps_id, -1))
        expected = 0 if first.is_idr else self._next
        if sps is None or expected is None:
            return ""
        found = read_frame_num(nal, sps.frame_num_bits, has_planes=sps.has_separate_planes)
        # A picture that is no reference has the number of the next reference, which then has it once more.
        self._next = (found + first.is_reference) % (1 << sps.frame_num_bits)
        if found == expected:
            return ""
        return f"frame_num {found}, expected {expected}: a picture before it is absent, or stands twice"
