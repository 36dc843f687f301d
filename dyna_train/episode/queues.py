"""What waits to be written: the frames of each camera until every camera has them, and so the depth pictures."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dyna_train.episode.gop import frame_crc
from dyna_train.episode.profile import MISSING_NS
from dyna_train.episode.tracks import CameraTrack, DepthTrack
from dyna_train.video.encode import CameraEncoder


@dataclass(slots=True)
class CameraQueue:
    """One camera while its episode is written; a step is fed once, as a frame, a packet or a gap."""

    track: CameraTrack
    channel_id: int
    encoder: CameraEncoder | None
    """None for a camera whose packets are copied."""
    capture_ns: list[int] = field(default_factory=list)
    """Of every step that was fed."""
    packets: dict[int, bytes] = field(default_factory=dict)
    """By step: encoded and not yet written."""
    frame_bytes: list[int] = field(default_factory=list)
    """Of every step that was written."""
    gop_crcs: list[int] = field(default_factory=list)
    last_frame: int = -1
    """Step of the last frame that was fed; -1 before any."""
    _inside: deque[int] = field(default_factory=deque)

    @property
    def what(self) -> str:
        """Its name, for messages."""
        return f"camera {self.track.name}"

    @property
    def num_fed(self) -> int:
        """Steps that were fed, which is the next step to feed."""
        return len(self.capture_ns)

    @property
    def num_ready(self) -> int:
        """Every step before this one can be written."""
        return self._inside[0] if self._inside else self.num_fed

    def fed_to_encoder(self, packets: list[bytes], capture_ns: int) -> None:
        """The next step went into the encoder, and `packets` of earlier ones, or of it, came out."""
        self.last_frame = self.num_fed
        self._inside.append(self.num_fed)
        self.capture_ns.append(capture_ns)
        self.came_out(packets)

    def came_out(self, packets: list[bytes]) -> None:
        """Take what came out of the encoder."""
        for packet in packets:
            self.packets[self._inside.popleft()] = packet

    def fed_packet(self, packet: bytes, capture_ns: int) -> None:
        """The next step, already encoded."""
        self.last_frame = self.num_fed
        self.packets[self.num_fed] = packet
        self.capture_ns.append(capture_ns)

    def written(self, packet: bytes, starts_gop: bool) -> None:
        """The next step was written; an empty packet stands for a gap."""
        step = len(self.frame_bytes)
        self.frame_bytes.append(len(packet))
        crc = 0 if starts_gop else self.gop_crcs.pop()
        self.gop_crcs.append(frame_crc(step, packet, crc) if packet else crc)

    def skip(self, num_steps: int) -> None:
        """The next steps have no frame."""
        self.capture_ns.extend([MISSING_NS] * num_steps)


@dataclass(slots=True)
class DepthQueue:
    """One depth camera while its episode is written."""

    track: DepthTrack
    channel_id: int
    capture_ns: list[int] = field(default_factory=list)
    pictures: dict[int, bytes] = field(default_factory=dict)
    """By step: uint16 rows, little-endian, not yet written."""

    @property
    def what(self) -> str:
        """Its name, for messages."""
        return f"depth camera {self.track.name}"

    @property
    def num_fed(self) -> int:
        """Steps that were fed, which is the next step to feed."""
        return len(self.capture_ns)

    @property
    def num_ready(self) -> int:
        """Every step before this one can be written."""
        return self.num_fed

    def skip(self, num_steps: int) -> None:
        """The next steps have no picture."""
        self.capture_ns.extend([MISSING_NS] * num_steps)
