"""ALOHA-style HDF5: one file per episode, a fixed rate, JPEG per frame (padded) or raw pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    Folder,
    RawMessage,
    Recording,
    RecordingMeta,
    RecordingRef,
    Roles,
    TopicInfo,
)
from dyna_assets.landing.sources.aloha.layout import (
    MOST_BYTES,
    Layout,
    num_values,
    raw_form,
    read_layout,
    read_rows,
    read_whole,
    still_bytes,
)
from dyna_assets.landing.sources.base import (
    damage_named,
    open_file,
)
from dyna_assets.landing.sources.facts import exact_rate, first_of, meta_of, others
from dyna_assets.landing.sources.one_file import OneFileReader
from dyna_assets.landing.sources.roles import guess_roles
from dyna_assets.landing.sources.row_json import row_json, row_topic
from dyna_assets.landing.sources.row_recording import RowRecording
from dyna_assets.landing.sources.video import ticks_to_ns
from dyna_train.episode.channels import ExtraTopic
from dyna_train.errors import MissingExtra

try:
    import h5py
except ImportError as error:
    raise MissingExtra.of("h5py", "assets", "Reading HDF5 recordings") from error

ALOHA_HZ = 50
DAMAGE = (OSError, RuntimeError, KeyError, OverflowError, ValueError, TypeError, MemoryError)
"""What h5py raises on damaged bytes. Memory: what is asked for is bounded, so a size in the file is wrong."""
BLOCK_BYTES = 16 << 20
NO_ROLE = re.compile(r"time|stamp|index", re.IGNORECASE)
"""Names of vectors that count and are not measured."""
FPS_KEYS = ("fps", "rate_hz", "hz", "frequency", "control_frequency")


class AlohaHdf5Reader(OneFileReader):
    """Folders of .hdf5 or .h5 files, one recording each."""

    name = "aloha_hdf5"
    looks_for = "files *.hdf5 or *.h5"
    suffixes = (".hdf5", ".h5")
    ignores: Mapping[str, str] = {
        "compress_len": "lengths of the padded pictures, which say theirs themselves"
    }

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one file. Raises RecordingError if it is cut, no HDF5, or not laid out as ALOHA's."""
        return AlohaRecording.open(folder, ref.files[0])

    def roles(self, recording: Recording) -> Roles:
        """Roles from the dataset names (clocks and counters are none); the grid is the file's rate."""
        telling = {
            name: info
            for name, info in recording.topics.items()
            if name not in self.ignores and not NO_ROLE.search(name.rpartition("/")[2])
        }
        assert recording.meta.rate_hz is not None, "the reader sets it"
        return guess_roles(telling, recording.meta.rate_hz)


class AlohaRecording(RowRecording):
    """One open file. Topics are its datasets: 'observations/qpos', 'observations/images/top', 'action'."""

    def __init__(
        self,
        where: str,
        stack: ExitStack,
        file: Any,
        fps: Fraction,
        meta: RecordingMeta,
        layout: Layout,
    ) -> None:
        super().__init__(where, meta, layout.topics)
        self._stack, self._file, self._fps, self._whole_topics = stack, file, fps, layout.whole

    @classmethod
    def open(cls, folder: Folder, name: str) -> AlohaRecording:
        """Open the file `name`. Raises RecordingError naming the file, its size, and what is wrong."""
        where = folder.at(name)
        with ExitStack() as stack:
            handle = stack.enter_context(open_file(folder, name))
            with damage_named(
                DAMAGE, lambda error: f"{where}: not readable as HDF5 ({error}); record or upload it again"
            ):
                file = stack.enter_context(h5py.File(handle, "r"))
                fps, fps_note = _fps(file.attrs, where)
                layout = read_layout(file, where)
                meta = _meta(file.attrs, fps, fps_note, layout)
            return cls(where, stack.pop_all(), file, fps, meta, layout)

    def close(self) -> None:
        """Release the file."""
        self._stack.close()

    def _times(self, info: TopicInfo) -> NDArray[np.int64]:
        """On the grid of the file's rate: the format stores none."""
        return ticks_to_ns(np.arange(info.num_messages, dtype=np.int64), 1 / self._fps)

    def _payloads(self, info: TopicInfo) -> Iterator[Any]:
        return map(_payload_of(info), self._rows(info.name))

    def _extra_topic(self, info: TopicInfo) -> ExtraTopic:
        """Stills as they are, large arrays as their bytes, other rows as JSON."""
        dataset = self._file[info.name]
        encoding, facts, raw = raw_form(info, dataset)
        if raw:
            return ExtraTopic(info.name, encoding, metadata=facts)
        return row_topic(info.name, dtype=str(dataset.dtype))

    def _raw(self, info: TopicInfo) -> Iterator[RawMessage]:
        """A dataset without rows is one message, at the start."""
        _, _, to_bytes = raw_form(info, self._file[info.name])
        times_N, to_message = self._times(info), to_bytes or row_json
        rows = self._whole(info) if info.name in self._whole_topics else self._rows(info.name)
        for time_ns, row in zip(times_N.tolist(), rows, strict=True):
            yield RawMessage(info.name, time_ns, to_message(row))

    def _whole(self, info: TopicInfo) -> Iterator[Any]:
        place = f"{self._where}: topic '{info.name}'"
        dataset = self._file[info.name]
        if info.num_messages and dataset.nbytes > MOST_BYTES:
            raise RecordingError(
                f"{place} takes {dataset.nbytes:,} bytes in one piece, expected {MOST_BYTES:,} at most; "
                "name it under 'ignore' in the source's TOML"
            )
        with damage_named(DAMAGE, lambda error: f"{place} cannot be read ({error}); the file is damaged"):
            yield from (read_whole(dataset, place) for _ in range(info.num_messages))

    def _rows(self, topic: str) -> Iterator[Any]:
        dataset = self._file[topic]
        step = _block_rows(dataset)
        for start in range(0, len(dataset), step):
            stop = min(start + step, len(dataset))
            place = f"{self._where}: topic '{topic}' rows {start} to {stop - 1}"
            with damage_named(DAMAGE, lambda error: f"{place} cannot be read ({error}); the file is damaged"):  # noqa: B023
                block = read_rows(dataset, start, stop, place)
            yield from block


def _payload_of(info: TopicInfo) -> Callable[[NDArray[Any]], Any]:
    if info.kind == "vector":
        return lambda row: np.atleast_1d(row).astype(np.float64)
    if info.encoding in ("jpeg", "png"):
        return still_bytes
    pixels = {"rgb8": "rgb24", "mono8": "gray"}[info.encoding]
    return lambda row: av.VideoFrame.from_ndarray(row, format=pixels)


def _block_rows(dataset: Any) -> int:
    """Rows to read at once: whole storage chunks, since a part of one costs as much as all of it."""
    row_bytes = max(1, dataset.dtype.itemsize * num_values(dataset.shape[1:]))
    chunk_rows = dataset.chunks[0] if dataset.chunks else 1
    wanted = max(chunk_rows, min(256, BLOCK_BYTES // row_bytes) if row_bytes < 4096 else 1)
    return int(max(1, min(wanted, max(1, BLOCK_BYTES // row_bytes))))


def _fps(attrs: Mapping[str, Any], where: str) -> tuple[Fraction, str]:
    """(rate, '') from the attributes, or ALOHA's own rate and a note."""
    value = first_of(attrs, *FPS_KEYS)
    if value is None:
        return Fraction(ALOHA_HZ), f"no attribute {', '.join(FPS_KEYS)}: took ALOHA's {ALOHA_HZ} Hz"
    try:
        return exact_rate(value), ""
    except (ValueError, ZeroDivisionError) as error:
        raise RecordingError(f"{where}: attribute fps: {error}") from None


def _meta(attrs: Mapping[str, Any], fps: Fraction, fps_note: str, layout: Layout) -> RecordingMeta:
    return meta_of(
        attrs,
        paired_by="number",
        rate_hz=float(fps),
        missing=layout.missing,
        notes=(fps_note,) if fps_note else (),
        extra={**others(attrs, *FPS_KEYS), "attributes": layout.attributes},
    )
