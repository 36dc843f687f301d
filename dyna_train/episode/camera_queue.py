"""One camera of an episode that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mcap.records import Message

from dyna_train.episode.profile import CameraTrack
from dyna_train.episode.schemas import encode_video
from dyna_train.video.encode import CameraEncoder


@dataclass(slots=True)
class CameraQueue:
    """One camera while it is written: encoded packets wait here until every camera has the chunk's."""

    track: CameraTrack
    channel_id: int
    encoder: CameraEncoder
    capture_ns: list[int] = field(default_factory=list)
    packets: list[bytes] = field(default_factory=list)
    num_packets: int = 0
    """Packets that came out of the encoder; `packets` holds the last of them, unwritten."""
    frame_bytes: list[int] = field(default_factory=list)
    head_bytes: list[int] = field(default_factory=list)
    gop_crcs: list[int] = field(default_factory=list)

    def put(self, packets: Sequence[bytes]) -> None:
        """Take what came out of the encoder."""
        self.packets.extend(packets)
        self.num_packets += len(packets)

    def message(self, step: int, packet: bytes, grid_ns: int) -> Message:
        """The MCAP message of one step: logged at grid time, published at capture time."""
        capture_ns = self.capture_ns[step]
        return Message(
            channel_id=self.channel_id,
            sequence=step,
            log_time=grid_ns,
            publish_time=capture_ns,
            data=encode_video(capture_ns, self.track.name, packet),
        )
