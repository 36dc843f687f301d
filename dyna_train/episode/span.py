"""Read by plan: what windows need of several files is fetched together, and decoded once.

    plans = [episode.plan(frame_steps=..., state_steps=...) for each window or stretch]
    spans = fetch(plans)
    spans[0].frames("top", steps), spans[0].state(steps)

Array axes: N asked steps, H W pixels, D dimensions, B bytes of one step of state, K pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import zstandard
from numpy.typing import NDArray

from dyna_train.episode.blocks import VectorPlaces, vector_places
from dyna_train.episode.container import MESSAGE_HEAD_BYTES, message_payloads, unpacked
from dyna_train.episode.gop import GopFrames, split_gop
from dyna_train.episode.index import GopTable
from dyna_train.episode.profile import DEPTH_GROUP, STATE_GROUP, VIDEO_GROUP
from dyna_train.episode.schemas import depth_bytes, parse_depth, video_head_bytes
from dyna_train.episode.source import ByteSource, Range, read_ranges
from dyna_train.episode.tracks import Tracks
from dyna_train.errors import BadInput, CorruptEpisode, MissingFrame
from dyna_train.video.pixels import FrameConverter, room_for

Output = Literal["rgb", "yuv420"]
Steps = Sequence[int] | NDArray[np.int64]
_PADDING = ((0, 0), (0, 1), (1, 0), (1, 1))  # H.264 has even sizes only
Piece = tuple[str, int]
"""Group and number of a piece."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What one read needs of one file, before a byte of it is read: the pieces, and where they lie."""

    source: ByteSource
    tracks: Tracks
    table: GopTable
    converters: Mapping[str, FrameConverter]
    pieces: tuple[Piece, ...]
    frame_steps: frozenset[int]
    """Steps whose decoded frames a span keeps."""

    @property
    def ranges(self) -> list[Range]:
        """First and end byte of each piece."""
        return [self.table.groups[group].range(piece) for group, piece in self.pieces]


def step_numbers(steps: Steps, num_steps: int, *, where: str) -> NDArray[np.int64]:
    """The asked steps as int64 [N]. Raises BadInput for what is no step number, or none of 0 .. num_steps - 1."""
    steps_N = whole_numbers(steps, where=f"{where}: steps")
    outside = steps_N[(steps_N < 0) | (steps_N >= num_steps)]
    if outside.size:
        raise BadInput(f"{where}: step {outside[0]} is outside the episode; expected 0 <= step < {num_steps}")
    return steps_N


def whole_numbers(asked: Steps, *, where: str) -> NDArray[np.int64]:
    """What was asked for as int64 [N]. Raises BadInput for a mask, floats, texts: numpy would take them all."""
    try:
        asked_N = np.asarray(asked)
        if asked_N.size == 0:
            return np.empty(0, np.int64)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{where} {asked!r:.80}: expected whole numbers ({error})") from error
    if asked_N.dtype.kind not in "iu" or asked_N.ndim > 1:
        advice = "; of a mask take np.flatnonzero" if asked_N.dtype.kind == "b" else ""
        raise BadInput(
            f"{where} are {asked_N.dtype} {list(asked_N.shape)}, expected a list of whole numbers{advice}"
        )
    return asked_N.astype(np.int64).reshape(-1)


def checked_size(size: tuple[int, int]) -> tuple[int, int]:
    """Refuse a size that is not (height, width) in whole pixels."""
    if len(size) != 2 or not all(isinstance(side, int | np.integer) and side > 0 for side in size):
        raise BadInput(f"size is {size!r}, expected (height, width) in whole pixels, both above 0")
    return size


def fetch(plans: Sequence[ReadPlan]) -> list[Span]:
    """The bytes of all plans, by as few requests as it takes, those of different files under way together.

    Plans of one file share what they have in common. Raises EpisodeError for a file that is gone or cut.
    """
    wanted: dict[int, dict[Piece, Range]] = {}
    sources = {id(plan.source): plan.source for plan in plans}
    for plan in plans:
        wanted.setdefault(id(plan.source), {}).update(zip(plan.pieces, plan.ranges, strict=True))
    answers = read_ranges([(sources[key], list(pieces.values())) for key, pieces in wanted.items()])
    bytes_of = {
        key: dict(zip(pieces, parts, strict=True))
        for (key, pieces), parts in zip(wanted.items(), answers, strict=True)
    }
    return [Span(plan, {piece: bytes_of[id(plan.source)][piece] for piece in plan.pieces}) for plan in plans]


class Span:
    """Stretches of one episode in memory, compressed; every GOP is decoded once for all windows it serves.

    Decoded frames of the planned steps stay until the span is dropped: 0.5 MB each at 640x480. Used by one
    thread at a time.
    """

    def __init__(self, plan: ReadPlan, data: Mapping[Piece, memoryview]) -> None:
        self._plan = plan
        self._data = data
        self._packets: dict[int, dict[int, dict[int, memoryview]]] = {}
        self._frames: dict[tuple[int, int], GopFrames] = {}

    @property
    def num_bytes(self) -> int:
        """Compressed bytes held."""
        return sum(len(part) for part in self._data.values())

    def holds(self, pieces: Sequence[Piece]) -> bool:
        """True if these pieces are in it."""
        return all(piece in self._data for piece in pieces)

    def frames(
        self,
        camera: str,
        steps: Steps,
        size: tuple[int, int] | None = None,
        *,
        output: Output = "rgb",
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """Frames of camera `camera` (a name) at `steps`, in any order, repeats allowed.

        size: (height, width) to resize to. output 'rgb': uint8 [N, H, W, 3]; 'yuv420': uint8 [N, H * 3 / 2, W],
        planes Y, U, V one after the other, H and W rounded up to even. out: an array to write into instead of
        a new one. Raises BadInput for a step that is not in the span, MissingFrame where the camera has none,
        CorruptEpisode naming file, camera and GOP.
        """
        plan = self._plan
        number = plan.tracks.camera(camera, where=plan.source.uri)
        track = plan.tracks.cameras[number]
        steps_N = self._checked(VIDEO_GROUP, steps)
        height, width = (track.height, track.width) if size is None else checked_size(size)
        if output not in ("rgb", "yuv420"):
            raise BadInput(f"output is {output!r}, expected 'rgb' or 'yuv420'")
        shape = (height, width, 3)
        if output == "yuv420":
            shape = ((height + height % 2) * 3 // 2, width + width % 2)  # type: ignore[assignment]
        frames = room_for(out, (len(steps_N), *shape))
        converter = plan.converters[camera]
        first_place: dict[int, int] = {}
        for place, step in sorted(enumerate(steps_N.tolist()), key=lambda one: one[1]):
            if step in first_place:
                frames[place] = frames[first_place[step]]
                continue
            first_place[step] = place
            frame = self._gop_frames(number, step // plan.table.layout.gop).frame(step)
            if frame is None:
                raise MissingFrame(
                    f"{plan.source.uri}: camera {camera} has no frame at step {step}: the episode records a gap "
                    "there. Leave windows that touch it out"
                )
            if (frame.width - track.width, frame.height - track.height) not in _PADDING:
                raise CorruptEpisode(
                    f"{plan.source.uri}: camera {camera}: frames of {frame.width}x{frame.height}, its track says "
                    f"{track.width}x{track.height}; the tracks are of another episode"
                )
            if output == "rgb":
                converter.to_rgb(frame, track.width, track.height, size, out=frames[place])
            else:
                converter.to_yuv420(frame, track.width, track.height, size, out=frames[place])
        plan.source.counters.kept += len(first_place)
        return frames

    def drop_frames(self) -> None:
        """Forget what was decoded; the compressed bytes stay."""
        self._frames.clear()

    def state(self, steps: Steps) -> NDArray[np.float32]:
        """All state topics side by side in header order at `steps`, float32 [N, D]."""
        return self.vectors(steps, [i for i, t in enumerate(self._plan.tracks.vectors) if t.role == "state"])

    def action(self, steps: Steps) -> NDArray[np.float32]:
        """All action topics side by side in header order at `steps`, float32 [N, D]."""
        return self.vectors(steps, [i for i, t in enumerate(self._plan.tracks.vectors) if t.role == "action"])

    def vectors(self, steps: Steps, topics: Sequence[int]) -> NDArray[np.float32]:
        """Vector topics (numbers in header order) side by side at `steps`, float32 [N, D].

        Raises BadInput for a step that is not in the span, CorruptEpisode naming the damaged block.
        """
        steps_N = step_numbers(steps, self._plan.table.num_steps, where=self._plan.source.uri)
        if not topics or not len(steps_N):
            dims = [self._plan.tracks.vectors[topic].dim for topic in topics]
            return np.empty((len(steps_N), sum(dims)), np.float32)
        self._check_held(STATE_GROUP, steps_N)
        length = self._plan.table.groups[STATE_GROUP].steps
        row_of_piece_K, steps_TB = self._state
        rows_N = row_of_piece_K[steps_N // length] + steps_N % length
        return self._places.gather(steps_TB, rows_N, topics)

    def depth(self, name: str, steps: Steps) -> NDArray[np.uint16]:
        """Pictures of depth camera `name` at `steps`, uint16 [N, H, W].

        Raises BadInput for a step that is not in the span, MissingFrame where the camera has none.
        """
        number = self._plan.tracks.depth(name, where=self._plan.source.uri)
        track = self._plan.tracks.depths[number]
        channel = self._plan.tracks.channel_id(track.topic)
        steps_N = self._checked(DEPTH_GROUP, steps)
        pictures = np.empty((len(steps_N), track.height, track.width), np.uint16)
        for piece in self._plan.table.groups[DEPTH_GROUP].of_steps(steps_N):
            what = self._what(DEPTH_GROUP, piece)
            messages = message_payloads(memoryview(self._unpacked(DEPTH_GROUP, piece)), what=what)
            found = {one.sequence: one.payload for one in messages if one.channel == channel}
            for place in np.flatnonzero(steps_N // self._plan.table.groups[DEPTH_GROUP].steps == piece):
                step = int(steps_N[place])
                if step not in found:
                    raise MissingFrame(
                        f"{self._plan.source.uri}: depth camera {name} has no picture at step {step}"
                    )
                image = parse_depth(found[step])
                if (image.width, image.height) != (track.width, track.height):
                    raise CorruptEpisode(
                        f"{what}: camera {name}: pictures of {image.width}x{image.height}, its track says "
                        f"{track.width}x{track.height}; the tracks are of another episode"
                    )
                pictures[place] = np.frombuffer(image.data, "<u2").reshape(track.height, track.width)
        return pictures

    def _checked(self, group: str, steps: Steps) -> NDArray[np.int64]:
        """The steps as an array, all of them in the span."""
        steps_N = step_numbers(steps, self._plan.table.num_steps, where=self._plan.source.uri)
        self._check_held(group, steps_N)
        return steps_N

    def _check_held(self, group: str, steps_N: NDArray[np.int64]) -> None:
        """Raises BadInput for a step whose piece is not in the span."""
        table = self._plan.table
        pieces = table.groups[group].of_steps(steps_N) if group in table.groups else []
        if not self.holds([(group, piece) for piece in pieces]) or (
            group not in table.groups and len(steps_N)
        ):
            held = [piece for name, piece in self._data if name == group]
            stretches = ", ".join(f"{s.start}-{s.stop - 1}" for s in (table.steps_of(group, p) for p in held))
            raise BadInput(
                f"{self._plan.source.uri}: steps {steps_N.min()} to {steps_N.max()} of group {group} were not "
                f"planned; the span holds steps {stretches or 'none'}"
            )

    def _gop_frames(self, camera: int, gop: int) -> GopFrames:
        if (camera, gop) not in self._frames:
            plan = self._plan
            if gop not in self._packets:
                heads = {
                    plan.tracks.channel_id(track.topic): video_head_bytes(track.name)
                    for track in plan.tracks.cameras
                }
                steps = plan.table.steps_of(VIDEO_GROUP, gop)
                self._packets[gop] = split_gop(
                    self._data[VIDEO_GROUP, gop], steps, heads, what=self._what(VIDEO_GROUP, gop)
                )
            track = plan.tracks.cameras[camera]
            crc = int(plan.table.groups[VIDEO_GROUP].crc_NK[camera, gop])
            start, _ = plan.table.groups[VIDEO_GROUP].range(gop)
            what = f"{plan.source.uri}: camera {track.name}, GOP {gop} from byte {start:,}"
            packets = self._packets[gop][plan.tracks.channel_id(track.topic)]
            self._frames[camera, gop] = GopFrames.checked(
                packets, crc, plan.frame_steps, plan.source.counters, what
            )
        return self._frames[camera, gop]

    @cached_property
    def _places(self) -> VectorPlaces:
        return vector_places(tuple(track.dim for track in self._plan.tracks.vectors))

    @cached_property
    def _state(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """First row of each state block that is held, int64 [K], and their rows, uint8 [T, B]."""
        held = sorted(piece for group, piece in self._data if group == STATE_GROUP)
        row_of_piece_K = np.zeros(held[-1] + 1, np.int64)
        blocks, row = [], 0
        for piece in held:
            blocks.append(self._unpacked(STATE_GROUP, piece))
            row_of_piece_K[piece] = row
            row += len(self._plan.table.steps_of(STATE_GROUP, piece))
        joined = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        return row_of_piece_K, np.frombuffer(joined, np.uint8).reshape(row, self._places.step_bytes)

    def _unpacked(self, group: str, piece: int) -> bytes:
        """The records of a zstd piece, checked; a depth piece has fewer bytes where a camera has gaps."""
        part, what = self._data[group, piece], self._what(group, piece)
        crc = int(self._plan.table.groups[group].crc_NK[0, piece])
        most = len(self._plan.table.steps_of(group, piece)) * self._step_bytes(group)
        try:
            data = unpacked(part, most)
        except zstandard.ZstdError as error:
            raise CorruptEpisode(f"{what}: not readable as zstd: {error}; fetch the file again") from error
        if (group == STATE_GROUP and len(data) != most) or zlib.crc32(data) != crc:
            raise CorruptEpisode(
                f"{what}: {len(data):,} bytes with crc32 {zlib.crc32(data):08x}, expected {most:,} with "
                f"{crc:08x}; fetch the file again"
            )
        return data

    def _step_bytes(self, group: str) -> int:
        """Bytes of the records of one step that is not in a gap."""
        if group == STATE_GROUP:
            return self._places.step_bytes
        return sum(
            MESSAGE_HEAD_BYTES + depth_bytes(track.name, track.width, track.height)
            for track in self._plan.tracks.depths
        )

    def _what(self, group: str, piece: int) -> str:
        """A piece, for messages."""
        steps = self._plan.table.steps_of(group, piece)
        start, _ = self._plan.table.groups[group].range(piece)
        kind = {VIDEO_GROUP: "GOP", STATE_GROUP: "state block", DEPTH_GROUP: "depth chunk"}[group]
        return f"{self._plan.source.uri}: {kind} of steps {steps.start}-{steps.stop - 1} from byte {start:,}"
