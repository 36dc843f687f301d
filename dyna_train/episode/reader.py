"""Read an episode file by its index: vectors, capture times, frames of any steps.

Array axes: T steps, D state dimensions, A action dimensions, N asked frames, H W pixels.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import av
import fsspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from dyna_train.episode.blocks import read_block, step_dtype
from dyna_train.episode.container import chunk_head_bytes
from dyna_train.episode.index import CAPTURE_NAME, EpisodeIndex, crc_of, unpack_arrays
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import STATE_GROUP, EpisodeHeader, Role, grid_times_ns
from dyna_train.episode.source import ByteSource, ReadCounters, open_source
from dyna_train.episode.tail import Tail, attachment_data, read_tail
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError
from dyna_train.video.decode import decode_gop
from dyna_train.video.pixels import FrameConverter


class Episode:
    """An open episode file.

    Holds one file handle and, after the first use, the vectors. Picklable: a copy reopens the file. May be
    used in forked and spawned workers, by one thread at a time.
    """

    def __init__(self, source: ByteSource, tail: Tail, fs: fsspec.AbstractFileSystem | None) -> None:
        self.uri = source.uri
        self.header: EpisodeHeader = tail.header
        self.index: EpisodeIndex = tail.index
        self._source = source
        self._attachments = tail.attachments
        self._fs = fs
        self._converters: dict[str, FrameConverter] = {}
        self._held: dict[int, memoryview] = {}
        """Bytes of the GOPs of the last call: the other cameras of the same steps lie in them."""

    @classmethod
    def open(cls, uri: str | Path, fs: fsspec.AbstractFileSystem | None = None) -> Episode:
        """Open the file at `uri` by one read of its tail; a plain path is a local file.

        Raises TruncatedEpisode, CorruptEpisode, or EpisodeError for an absent file or one of another kind.
        """
        source = open_source(uri, fs)
        try:
            return cls(source, read_tail(source), fs)
        except EpisodeError:
            source.close()
            raise

    @property
    def counters(self) -> ReadCounters:
        """What reading cost since the file was opened."""
        return self._source.counters

    @property
    def layout(self) -> EpisodeLayout:
        """GOP, chunk and block lengths in steps."""
        return self.index.layout

    @property
    def num_steps(self) -> int:
        """Steps of the grid."""
        return self.index.num_steps

    @cached_property
    def state_TD(self) -> NDArray[np.float32]:
        """All state topics side by side in header order, float32 [T, D]; D is 0 without any."""
        return self._role("state")

    @cached_property
    def action_TA(self) -> NDArray[np.float32]:
        """All action topics side by side in header order, float32 [T, A]; A is 0 without any."""
        return self._role("action")

    def vector(self, topic: str) -> NDArray[np.float32]:
        """The vector topic `topic` (`/state/<name>`), float32 [T, D]; read-only.

        Raises BadInput for an unknown topic, CorruptEpisode naming the damaged block.
        """
        self.header.vector(topic)
        return self._vectors[topic]

    def capture_ns(self, topic: str) -> NDArray[np.int64]:
        """When each step of `topic` (`/camera/<name>/video`, `/state/<name>`) was captured, int64 [T] ns."""
        if topic not in self.header.topics:
            raise BadInput(f"{self.uri}: no topic '{topic}'; its topics: {', '.join(self.header.topics)}")
        return self._capture_ns[topic]

    def frames(
        self, camera: str, steps: Sequence[int] | NDArray[np.int64], size: tuple[int, int] | None = None
    ) -> NDArray[np.uint8]:
        """RGB frames of camera `camera` (a name) at `steps`, uint8 [N, H, W, 3].

        steps: 0 <= step < num_steps, in any order, repeats allowed. size: (height, width) to resize to.
        Each GOP they touch is read and checked whole, and decoded once, up to its last wanted frame.
        Raises BadInput for an unknown camera or step, CorruptEpisode naming camera and GOP.
        """
        track = self.header.camera(camera)
        number = self.header.cameras.index(track)
        wanted_N = self._checked_steps(steps)
        distinct_U, row_N = np.unique(wanted_N, return_inverse=True)
        height, width = size or (track.height, track.width)
        frames_UHWC = np.empty((len(distinct_U), height, width, 3), np.uint8)
        converter = self._converters.setdefault(camera, FrameConverter())
        gop_U = distinct_U // self.layout.gop
        gops = np.unique(gop_U).tolist()
        self._hold(gops)
        for gop in gops:
            rows = np.flatnonzero(gop_U == gop)
            row_of = dict(
                zip((distinct_U[rows] - gop * self.layout.gop).tolist(), rows.tolist(), strict=True)
            )
            for position, frame in enumerate(self._decode(number, gop, num_frames=max(row_of) + 1)):
                if position in row_of:
                    frames_UHWC[row_of[position]] = converter.to_rgb(frame, track.width, track.height, size)
        self.counters.kept += len(distinct_U)
        return frames_UHWC if np.array_equal(distinct_U, wanted_N) else frames_UHWC[row_N]

    def close(self) -> None:
        """Release the file handle."""
        self._source.close()

    def __enter__(self) -> Episode:
        """Itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """A copy reopens the file, in whatever process it wakes up."""
        return Episode.open, (self.uri, self._fs)

    def __repr__(self) -> str:
        """What it is, not what is in it."""
        rate, topics = self.header.rate_hz, ", ".join(self.header.topics)
        return f"Episode({self.uri!r}: {self.num_steps} steps at {rate:g} Hz; {topics})"

    def _checked_steps(self, steps: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        wanted_N = np.asarray(steps, dtype=np.int64)
        outside = wanted_N[(wanted_N < 0) | (wanted_N >= self.num_steps)]
        if len(outside):
            raise BadInput(
                f"{self.uri}: step {outside[0]} is outside the episode; expected 0 <= step < {self.num_steps}"
            )
        return wanted_N

    def _hold(self, gops: Sequence[int]) -> None:
        """Have the bytes of these GOPs, of all cameras, at hand."""
        if not self._held.keys() >= set(gops):
            parts = self._source.read([self.index.gop_range(gop) for gop in gops])
            self._held = dict(zip(gops, parts, strict=True))

    def _decode(self, camera: int, gop: int, num_frames: int) -> Iterator[av.VideoFrame]:
        """The first num_frames frames of a GOP, after its bytes are checked."""
        first_byte, _ = self.index.gop_range(gop)
        data = self._held[gop]
        ranges = (self.index.frame_ranges(camera, gop) - first_byte).tolist()
        packets = [data[start:end] for start, end in ranges]
        what = f"{self.uri}: camera {self.header.cameras[camera].name}, GOP {gop} from byte {first_byte:,}"
        expected = int(self.index.gop_crc_NG[camera, gop])
        if crc_of(packets) != expected:
            raise CorruptEpisode(
                f"{what}: crc32 {crc_of(packets):08x}, expected {expected:08x}; fetch the file again"
            )
        self.counters.decoded += num_frames
        return decode_gop(packets[:num_frames], what=what)

    def _role(self, role: Role) -> NDArray[np.float32]:
        parts = [self._vectors[track.topic] for track in self.header.vectors if track.role == role]
        joined = np.concatenate([np.empty((self.num_steps, 0), np.float32), *parts], axis=1)
        joined.flags.writeable = False
        return joined

    @cached_property
    def _vectors(self) -> Mapping[str, NDArray[np.float32]]:
        """Every vector topic, read once: they share their blocks, and a minute of them is small."""
        tracks = self.header.vectors
        if not tracks:
            return {}
        dims = [track.dim for track in tracks]
        blocks = [read_block(data, dims) for data in self._state_blocks(step_dtype(dims).itemsize)]
        vectors = {
            track.topic: np.concatenate([block[i] for block in blocks]) for i, track in enumerate(tracks)
        }
        for values_TD in vectors.values():
            values_TD.flags.writeable = False  # shared by everybody who asks
        return vectors

    def _state_blocks(self, step_bytes: int) -> Iterator[bytes]:
        """The state blocks, uncompressed and checked, in step order."""
        table = self.index.chunks[STATE_GROUP]
        starts = table.offset_K + chunk_head_bytes("zstd")
        ends = table.offset_K + table.length_K
        parts = self._source.read(list(zip(starts.tolist(), ends.tolist(), strict=True)))
        for block, part in enumerate(parts):
            first, num_steps = int(table.first_step_K[block]), int(table.num_steps_K[block])
            what = (
                f"{self.uri}: state block of steps {first}-{first + num_steps - 1} at byte "
                f"{int(table.offset_K[block]):,}"
            )
            yield _unpacked(part, num_steps * step_bytes, int(self.index.block_crc_K[block]), what)

    @cached_property
    def _capture_ns(self) -> Mapping[str, NDArray[np.int64]]:
        place = self._attachments[CAPTURE_NAME]
        (record,) = self._source.read([(place.offset, place.offset + place.length)])
        _, skew = unpack_arrays(attachment_data(self.uri, record, place), what=f"{self.uri}: {CAPTURE_NAME}")
        grid_T = grid_times_ns(self.header.start_ns, self.header.rate_hz, self.num_steps)
        return {topic: grid_T + skew_T for topic, skew_T in skew.items()}


def _unpacked(part: memoryview, size: int, crc: int, what: str) -> bytes:
    """A zstd frame of `size` bytes, checked; the size is compared first, lest a damaged one be allocated."""
    try:
        found = zstandard.frame_content_size(part)
        data: bytes = zstandard.ZstdDecompressor().decompress(part) if found == size else b""
    except zstandard.ZstdError as error:
        raise CorruptEpisode(f"{what}: not readable as zstd: {error}; fetch the file again") from error
    if len(data) != size or zlib.crc32(data) != crc:
        raise CorruptEpisode(
            f"{what}: {found:,} bytes with crc32 {zlib.crc32(data):08x}, expected {size:,} with {crc:08x}; "
            "fetch the file again"
        )
    return data
