"""What an ALOHA-style HDF5 file holds: every dataset, and which of them are cameras, vectors or neither.

Datasets whose values lie in other files (external or virtual ones, links) are never read: a recording is made of its
own files, and such a name may lead anywhere on the machine that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import TopicInfo
from dyna_assets.landing.sources.aloha.chunks import refuse_bombs
from dyna_assets.landing.sources.base import MOST_DIMENSIONS
from dyna_assets.landing.sources.facts import plain
from dyna_assets.landing.stills import still_info
from dyna_train.errors import MissingExtra

try:
    import h5py
except ImportError as error:
    raise MissingExtra.of("h5py", "assets", "Reading HDF5 recordings") from error

OBSERVATIONS, IMAGES, ACTION = "observations/", "observations/images/", "action"
FIRST = ("observations/qpos",)  # positions before what is derived from them
MOST_ROWS = 1 << 24
"""4.6 hours at 1 kHz. More of them are a damaged size, or an attack on memory."""
MOST_BYTES = 1 << 28
"""Of a row, or of a storage chunk, which is unpacked whole."""


@dataclass(frozen=True, slots=True)
class Layout:
    """topics: every dataset by name. missing: those that cannot be read, with the reason.

    whole: those without a row per step; each is one message. attributes: those of groups and datasets.
    """

    topics: Mapping[str, TopicInfo]
    missing: Mapping[str, str]
    whole: frozenset[str]
    attributes: Mapping[str, Mapping[str, Any]]


def read_layout(file: Any, where: str) -> Layout:
    """The layout of an open h5py.File. Raises RecordingError if it holds none of ALOHA's datasets."""
    items: dict[str, Any] = {}
    file.visititems(lambda name, item: items.update({name: item}))
    datasets = {name: item for name, item in items.items() if isinstance(item, h5py.Dataset)}
    known = {name: item for name, item in datasets.items() if _is_known(name)}
    if not known:
        raise RecordingError(
            f"{where}: expected ALOHA's datasets (observations/qpos, observations/images/…, action), "
            f"found {', '.join(sorted(datasets)[:8]) or 'none'}"
        )
    missing = {name: fault for name, dataset in datasets.items() if (fault := _fault(dataset))}
    missing |= _links(file)
    steps = {len(dataset) for name, dataset in known.items() if name not in missing and dataset.shape}
    whole = frozenset(name for name, item in datasets.items() if not _has_rows(name, item, steps))
    names = sorted(datasets.keys() | missing.keys(), key=lambda name: (name not in FIRST, name))
    return Layout(
        {
            name: _topic(name, datasets[name], name in whole, where)
            if name not in missing
            else TopicInfo(name, "other", 0, encoding="not in this file")
            for name in names
        },
        missing,
        whole,
        {
            name: found
            for name, item in items.items()
            if (found := {k: plain(v) for k, v in item.attrs.items()})
        },
    )


def _is_known(name: str) -> bool:
    return name == ACTION or name.startswith(OBSERVATIONS)


def _has_rows(name: str, dataset: Any, steps: Collection[int]) -> bool:
    """True if the first axis is time: so in ALOHA's own groups, elsewhere where it is as long as they are."""
    return bool(dataset.shape) and (_is_known(name) or dataset.shape[0] in steps)


def _links(file: Any) -> dict[str, str]:
    """Names that lead to another file -> the reason why they are not followed."""
    found: dict[str, str] = {}

    def look(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            found[name] = f"is a link to {link.path} in another file, {link.filename}: copy it into this file"

    file.visititems_links(look)
    return found


def _fault(dataset: Any) -> str:
    """Why the values of a dataset are not to be read; '' if they are."""
    if dataset.external or dataset.is_virtual:
        return "its values lie in other files: write them into this one"
    shape = dataset.shape or ()
    if shape and shape[0] > MOST_ROWS:
        return f"says that it has {shape[0]:,} rows, expected {MOST_ROWS:,} at most: the file is damaged"
    unit = dataset.chunks or shape[1:]
    num_bytes = dataset.dtype.itemsize * max(num_values(unit), num_values(shape[1:]))
    if num_bytes > MOST_BYTES:
        return f"a row or chunk of it takes {num_bytes:,} bytes, expected {MOST_BYTES:,} at most"
    return ""


def num_values(sizes: Collection[int]) -> int:
    """Values in an array of this shape."""
    product = 1
    for size in sizes:  # not numpy's, which wraps around
        product *= int(size)
    return product


def _topic(name: str, dataset: Any, is_whole: bool, where: str) -> TopicInfo:
    shape, dtype = dataset.shape, dataset.dtype
    described = f"{dtype} {list(shape or ())}"
    if is_whole:
        return TopicInfo(name, "other", 0 if shape is None else 1, encoding=described)
    if name.startswith(IMAGES):
        return _image_topic(name, dataset, where) or TopicInfo(name, "other", shape[0], encoding=described)
    size = shape[1] if len(shape) == 2 else 1
    if len(shape) in (1, 2) and dtype.kind in "fiub" and 0 < size <= MOST_DIMENSIONS:
        names = tuple(f"{name.rpartition('/')[2]}_{index}" for index in range(size))
        return TopicInfo(name, "vector", shape[0], names, encoding=str(dtype))
    return TopicInfo(name, "other", shape[0], encoding=described)


def _image_topic(name: str, dataset: Any, where: str) -> TopicInfo | None:
    """None if the rows are no pictures. Raises RecordingError if the first one is damaged."""
    shape = dataset.shape
    is_bytes = dataset.dtype == np.uint8
    if len(shape) == 4 and is_bytes and shape[3] == 3:
        return TopicInfo(name, "image", shape[0], width=shape[2], height=shape[1], encoding="rgb8")
    if len(shape) == 3 and is_bytes:
        return TopicInfo(name, "image", shape[0], width=shape[2], height=shape[1], encoding="mono8")
    if len(shape) > 2 or not (is_bytes or h5py.check_vlen_dtype(dataset.dtype) == np.uint8):
        return None
    if not shape[0]:
        return TopicInfo(name, "image", 0, encoding="jpeg")
    place = f"{where}: topic '{name}' frame 0"
    still = still_info(still_bytes(read_rows(dataset, 0, 1, place)[0]), where=place)
    return TopicInfo(name, "image", shape[0], width=still.width, height=still.height, encoding=still.encoding)


def still_bytes(row: NDArray[np.uint8]) -> bytes:
    """The picture without its padding.

    compress_len is not used: its rows follow the recorder's camera order, which the file does not keep, and
    a picture never ends in zeros (JPEG in FF D9, PNG in a fixed checksum).
    """
    return row.tobytes().rstrip(b"\0")


def raw_form(info: TopicInfo, dataset: Any) -> tuple[str, dict[str, str], Callable[[Any], bytes] | None]:
    """(encoding, its facts, a row as bytes) of what is kept as it is: stills, and arrays too large for JSON.

    None instead of a function: rows are kept as JSON.
    """
    if info.encoding in ("jpeg", "png"):
        return info.encoding, {}, still_bytes
    inner = dataset.shape[1:] if dataset.shape else ()
    if dataset.dtype.kind in "fiub" and num_values(inner) > MOST_DIMENSIONS:
        facts = {"dtype": dataset.dtype.str, "shape": ",".join(map(str, inner))}
        return "ndarray", facts, lambda row: np.ascontiguousarray(row).tobytes()
    return "json", {}, None


def read_rows(dataset: Any, start: int, stop: int, where: str) -> Any:
    """Rows start to stop in one piece; texts as texts, whatever bytes they hold. Raises RecordingError."""
    refuse_bombs(dataset, start, stop, where=where)
    return _of_texts(dataset)[start:stop]


def read_whole(dataset: Any, where: str) -> Any:
    """All of a dataset. Raises RecordingError."""
    if dataset.shape:
        refuse_bombs(dataset, 0, len(dataset), where=where)
    return _of_texts(dataset)[()]


def _of_texts(dataset: Any) -> Any:
    is_text = h5py.check_string_dtype(dataset.dtype) is not None
    return dataset.asstr(errors="surrogateescape") if is_text else dataset
