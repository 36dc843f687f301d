"""ALOHA-style HDF5: one file per episode, a fixed rate, JPEG per frame (padded) or raw pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    Folder,
    Message,
    Recording,
    RecordingMeta,
    RecordingRef,
    Roles,
    TopicInfo,
)
from dyna_assets.landing.sources.base import (
    damage_named,
    first_of,
    guess_roles,
    info_of,
    merged,
    open_file,
    paired,
    plain,
    text_of,
    truth_of,
)
from dyna_assets.landing.sources.one_file import OneFileReader
from dyna_assets.landing.sources.video import ticks_to_ns
from dyna_assets.landing.stills import still_info
from dyna_train.errors import MissingExtra

try:
    import h5py
except ImportError as error:
    raise MissingExtra.of("h5py", "assets", "Reading HDF5 recordings") from error

ALOHA_HZ = 50
# what h5py raises on damaged bytes
DAMAGE = (OSError, RuntimeError, KeyError, OverflowError, ValueError, TypeError)
IMAGES = "observations/images/"
FIRST = ("observations/qpos",)  # positions before what is derived from them
BLOCK_BYTES = 16 << 20
FPS_KEYS = ("fps", "rate_hz", "hz", "frequency", "control_frequency")
TASK_KEYS = ("task", "language_instruction", "instruction", "task_description", "prompt")
SUCCESS_KEYS = ("success", "is_success")
ROBOT_KEYS = ("robot", "robot_type", "robot_id")
VERSION_KEYS = ("robot_software_version", "software_version")


class AlohaHdf5Reader(OneFileReader):
    """Folders of .hdf5 or .h5 files, one recording each."""

    name = "aloha_hdf5"
    looks_for = "files *.hdf5 or *.h5"
    suffixes = (".hdf5", ".h5")

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one file. Raises RecordingError if it is cut, no HDF5, or not laid out as ALOHA's."""
        return AlohaRecording.open(folder, ref.files[0])

    def roles(self, recording: Recording) -> Roles:
        """Roles from the dataset names; the grid is the file's rate."""
        return guess_roles(recording.topics, float(recording.meta.extra["fps"]))


class AlohaRecording:
    """One open file. Topics are its datasets: 'observations/qpos', 'observations/images/top', 'action'."""

    def __init__(
        self,
        where: str,
        stack: ExitStack,
        file: Any,
        fps: Fraction,
        meta: RecordingMeta,
        topics: Mapping[str, TopicInfo],
    ) -> None:
        self.meta = meta
        self.topics = topics
        self._where, self._stack, self._file, self._fps = where, stack, file, fps

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
                topics = _topics(file, where)
                meta = _meta(file.attrs, fps, fps_note)
            return cls(where, stack.pop_all(), file, fps, meta, topics)

    def times(self, topic: str) -> NDArray[np.int64]:
        """Times [N] in ns since the start, on the grid of the file's rate: the format stores none."""
        info = info_of(self.topics, topic, self._where, {})
        return ticks_to_ns(np.arange(info.num_messages, dtype=np.int64), 1 / self._fps)

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics` merged by time; holds one block of at most 16 MiB of each topic."""
        for topic in topics:
            info_of(self.topics, topic, self._where, {})
        return merged(
            paired(topic, self.times(topic), self._payloads(topic), self._where) for topic in topics
        )

    def close(self) -> None:
        """Release the file."""
        self._stack.close()

    def __enter__(self) -> AlohaRecording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _payloads(self, topic: str) -> Iterator[Any]:
        to_payload = _payload_of(self.topics[topic])
        dataset = self._file[topic]
        step = _block_rows(dataset)
        for start in range(0, len(dataset), step):
            yield from map(to_payload, self._block(topic, start, min(start + step, len(dataset))))

    def _block(self, topic: str, start: int, stop: int) -> Any:
        place = f"{self._where}: topic '{topic}' rows {start} to {stop - 1}"
        with damage_named(DAMAGE, lambda error: f"{place} cannot be read ({error}); the file is damaged"):
            return self._file[topic][start:stop]


def _payload_of(info: TopicInfo) -> Callable[[NDArray[Any]], Any]:
    if info.kind == "vector":
        return lambda row: np.atleast_1d(row).astype(np.float64)
    if info.encoding in ("jpeg", "png"):
        return _still_bytes
    pixels = {"rgb8": "rgb24", "mono8": "gray"}[info.encoding]
    return lambda row: av.VideoFrame.from_ndarray(row, format=pixels)


def _still_bytes(row: NDArray[np.uint8]) -> bytes:
    """The picture without its padding.

    compress_len is not used: its rows follow the recorder's camera order, which the file does not keep, and
    a picture never ends in zeros (JPEG in FF D9, PNG in a fixed checksum).
    """
    return row.tobytes().rstrip(b"\0")


def _block_rows(dataset: Any) -> int:
    """Rows to read at once: whole storage chunks, since a part of one costs as much as all of it."""
    row_bytes = max(1, dataset.dtype.itemsize * int(np.prod(dataset.shape[1:])))
    chunk_rows = dataset.chunks[0] if dataset.chunks else 1
    wanted = max(chunk_rows, min(256, BLOCK_BYTES // row_bytes) if row_bytes < 4096 else 1)
    return int(max(1, min(wanted, max(1, BLOCK_BYTES // row_bytes))))


def _topics(file: Any, where: str) -> dict[str, TopicInfo]:
    datasets: dict[str, Any] = {}
    file.visititems(
        lambda name, item: datasets.update({name: item}) if isinstance(item, h5py.Dataset) else None
    )
    if not any(name == "action" or name.startswith("observations/") for name in datasets):
        raise RecordingError(
            f"{where}: expected ALOHA's datasets (observations/qpos, observations/images/…, action), "
            f"found {', '.join(sorted(datasets)[:8]) or 'none'}"
        )
    names = sorted(datasets.keys() - {"compress_len"}, key=lambda name: (name not in FIRST, name))
    return {name: _topic(name, datasets[name], where) for name in names}


def _topic(name: str, dataset: Any, where: str) -> TopicInfo:
    shape, dtype = dataset.shape, dataset.dtype
    if name.startswith(IMAGES):
        return _image_topic(name, dataset, where)
    if len(shape) in (1, 2) and dtype.kind in "fiu":
        names = tuple(
            f"{name.rpartition('/')[2]}_{index}" for index in range(shape[1] if len(shape) == 2 else 1)
        )
        return TopicInfo(name, "vector", shape[0], names, encoding=str(dtype))
    return TopicInfo(name, "other", shape[0] if shape else 0, encoding=f"{dtype} {list(shape)}")


def _image_topic(name: str, dataset: Any, where: str) -> TopicInfo:
    shape = dataset.shape
    if len(shape) == 4 and dataset.dtype == np.uint8 and shape[3] == 3:
        return TopicInfo(name, "image", shape[0], width=shape[2], height=shape[1], encoding="rgb8")
    if len(shape) == 3 and dataset.dtype == np.uint8:
        return TopicInfo(name, "image", shape[0], width=shape[2], height=shape[1], encoding="mono8")
    if len(shape) in (1, 2) and (
        dataset.dtype == np.uint8 or h5py.check_vlen_dtype(dataset.dtype) == np.uint8
    ):
        if not shape[0]:
            return TopicInfo(name, "image", 0, encoding="jpeg")
        still = still_info(_still_bytes(dataset[0]), where=f"{where}: topic '{name}' frame 0")
        return TopicInfo(
            name, "image", shape[0], width=still.width, height=still.height, encoding=still.encoding
        )
    return TopicInfo(name, "other", shape[0] if shape else 0, encoding=f"{dataset.dtype} {list(shape)}")


def _fps(attrs: Mapping[str, Any], where: str) -> tuple[Fraction, str]:
    """(rate, '') from the attributes, or ALOHA's own rate and a note."""
    value = first_of(attrs, *FPS_KEYS)
    if value is None:
        return Fraction(ALOHA_HZ), f"no attribute {', '.join(FPS_KEYS)}: took ALOHA's {ALOHA_HZ} Hz"
    try:
        fps = Fraction(text_of(value))
    except (ValueError, ZeroDivisionError):
        fps = Fraction(0)
    if fps <= 0:
        raise RecordingError(f"{where}: attribute fps: expected a rate above 0 Hz, found {text_of(value)!r}")
    return fps, ""


def _meta(attrs: Mapping[str, Any], fps: Fraction, fps_note: str) -> RecordingMeta:
    used = {*FPS_KEYS, *TASK_KEYS, *SUCCESS_KEYS, *ROBOT_KEYS, *VERSION_KEYS, "operator"}
    return RecordingMeta(
        task=text_of(first_of(attrs, *TASK_KEYS)),
        success=truth_of(first_of(attrs, *SUCCESS_KEYS)),
        robot=text_of(first_of(attrs, *ROBOT_KEYS)),
        operator=text_of(attrs.get("operator")),
        robot_software_version=text_of(first_of(attrs, *VERSION_KEYS)),
        paired_by="number",
        extra={
            **{key: plain(value) for key, value in attrs.items() if key not in used},
            "fps": float(fps),
            "missing": {},
            "notes": [fps_note] if fps_note else [],
        },
    )
