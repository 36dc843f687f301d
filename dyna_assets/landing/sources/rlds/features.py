"""What the flattened lists of an RLDS record are, step by step: pictures, vectors, texts, and what else they hold."""

from __future__ import annotations

import hashlib
import math
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, TopicInfo
from dyna_assets.landing.sources.base import MOST_DIMENSIONS, damage_named, read_json
from dyna_assets.landing.sources.rlds.tf_example import Feature
from dyna_assets.landing.stills import JPEG, PNG, still_info

STEPS = "steps/"
RAGGED = "/ragged_"  # how TFDS names the parts of a list of lists of different lengths
SCALARS = frozenset({"is_first", "is_last", "is_terminal", "reward", "discount"})
"""What RLDS itself defines: one value a step."""
PNG_BIT_DEPTH = 24  # the byte that says it


@dataclass(frozen=True, slots=True)
class Declared:
    """One feature as features.json declares it. dtype: also 'text' and 'image'.

    shape: of one step; None where it varies; () of what stands in one entry of bytes.
    """

    shape: tuple[int, ...] | None
    dtype: str


@dataclass(frozen=True, slots=True)
class RowTopic:
    """One feature as a topic with a row for each step, or with a single row that is the whole list.

    size: entries of the list in one row. shape: of one row, for those who want it nested.
    """

    info: TopicInfo
    feature: Feature
    size: int
    shape: tuple[int, ...] | None = None

    def rows(self) -> Iterator[Any]:
        """The rows: bytes, a text, or numbers [*shape] in their own type."""
        for number in range(self.info.num_messages):
            start, stop = number * self.size, (number + 1) * self.size
            if self.feature.kind == "bytes":
                items = [self._item(item) for item in self.feature.items[start:stop]]
                yield items[0] if self.shape == () else items
            else:
                numbers = self.feature.numbers[start:stop]
                yield numbers if self.shape is None else numbers.reshape(self.shape)

    def vectors(self) -> Iterator[NDArray[np.float64]]:
        """The rows of numbers as vectors [size]."""
        for row in self.rows():
            yield np.asarray(row, np.float64).reshape(-1)

    def _item(self, item: memoryview) -> str | bytes:
        return str(item, "utf-8") if self.info.encoding == "text" else bytes(item)


def read_declared(folder: Folder, data_file: str) -> tuple[dict[str, Declared], str]:
    """(features by name, digest) from the features.json beside `data_file`; nothing and '' if there is none.

    Raises RecordingError if it is malformed.
    """
    name = posixpath.join(posixpath.dirname(data_file), "features.json")
    if not folder.exists(name):
        return {}, ""
    data = read_json(folder, name)
    with damage_named(
        (AttributeError, TypeError, ValueError, KeyError),
        lambda error: f"{folder.at(name)}: no description of features as TFDS writes it ({error!r})",
    ):
        return dict(_declared(data, "")), hashlib.sha256(repr(data).encode()).hexdigest()


def step_topics(
    features: Mapping[str, Feature], declared: Mapping[str, Declared], where: str
) -> tuple[dict[str, RowTopic], dict[str, str]]:
    """(topics, what is missing with its reason) of a record's step features; names are without 'steps/'.

    Raises RecordingError if it has none, or nothing tells how many steps there are.
    """
    steps = {name: feature for name, feature in features.items() if name.startswith(STEPS)}
    if not steps:
        raise RecordingError(
            f"{where}: expected RLDS features 'steps/…', found {', '.join(list(features)[:8]) or 'none'}"
        )
    sizes = {name: _size(name, feature, declared.get(name)) for name, feature in steps.items()}
    num_steps = _num_steps(steps, sizes, where)
    topics: dict[str, RowTopic] = {}
    absent = [name for name, one in declared.items() if one.shape is not None and name not in features]
    missing = {
        name.removeprefix(STEPS): "features.json promises it, the record has none"
        for name in absent
        if name.startswith(STEPS)
    }
    for name, feature in steps.items():
        topic = name.removeprefix(STEPS)
        size = sizes[name] or _even_share(name, feature, num_steps)
        if size and len(feature) % size == 0:
            try:
                topics[topic] = _row_topic(topic, feature, size, declared.get(name))
            except RecordingError as error:
                missing[topic] = str(error)
        elif sizes[name]:
            missing[topic] = f"features.json promises {size} values a step, found {len(feature):,} in all"
        else:
            topics[topic] = whole_list(topic, feature)
    return topics, missing


def whole_list(topic: str, feature: Feature) -> RowTopic:
    """A list that does not go by steps: one row holds all of it; no row if it is empty."""
    dtype = _bytes_kind(feature) if feature.kind == "bytes" else feature.kind or "empty list"
    return RowTopic(TopicInfo(topic, "other", int(len(feature) > 0), encoding=dtype), feature, len(feature))


def is_texts(feature: Feature) -> bool:
    """True if every entry is UTF-8 text."""
    return feature.kind == "bytes" and _bytes_kind(feature) == "text"


def _declared(
    node: Mapping[str, Any], path: str, outer: tuple[int, ...] = ()
) -> Iterator[tuple[str, Declared]]:
    """The leaves of TFDS's tree of features. outer: lengths of the sequences around."""
    if "featuresDict" in node:
        for name, child in node["featuresDict"]["features"].items():
            yield from _declared(child, f"{path}/{name}" if path else name, outer)
    elif "sequence" in node:
        length = int(node["sequence"].get("length", -1))
        # the outermost sequence is the steps; each row is one of them
        inner = outer if path == STEPS.rstrip("/") else (*outer, length)
        yield from _declared(node["sequence"]["feature"], path, inner)
    else:
        dtype = next((kind for kind in ("text", "image") if kind in node), "")
        tensor = node.get("tensor", {})
        dtype, packed = dtype or str(tensor.get("dtype", "")), tensor.get("encoding", "none")
        sizes = (*outer, *(int(size) for size in tensor.get("shape", {}).get("dimensions", ())))
        if packed != "none":  # one entry of bytes holds all of a step's numbers
            dtype, sizes = f"{dtype} {packed}", outer
        yield path, Declared(None if any(size < 0 for size in sizes) else sizes, dtype)


def _size(name: str, feature: Feature, declared: Declared | None) -> int:
    """Entries a step as far as they are known, else 0. A picture or text is one entry of bytes."""
    if declared is not None:
        return math.prod(declared.shape) if declared.shape is not None else 0
    is_one = feature.kind == "bytes" or name.removeprefix(STEPS) in SCALARS
    return int(is_one and RAGGED not in name)


def _even_share(name: str, feature: Feature, num_steps: int) -> int:
    """Entries a step of a list that nobody declared, if it can be cut into equal rows; else 0."""
    if RAGGED in name or not num_steps or len(feature) % num_steps:
        return 0
    return len(feature) // num_steps


def _num_steps(steps: Mapping[str, Feature], sizes: Mapping[str, int], where: str) -> int:
    """The number of steps that most features agree on; 0 if all lists are empty."""
    counts = Counter(len(feature) // sizes[name] for name, feature in steps.items() if sizes[name])
    if not counts and any(map(len, steps.values())):
        raise RecordingError(
            f"{where}: nothing tells how many steps it has: no features.json beside it, and no feature "
            f"{', '.join(sorted(SCALARS))}. Upload features.json with the data set"
        )
    return counts.most_common(1)[0][0] if counts else 0


def _row_topic(topic: str, feature: Feature, size: int, declared: Declared | None) -> RowTopic:
    """Raises RecordingError if its pictures are none."""
    num_rows = len(feature) // size
    if feature.kind == "bytes" and size == 1:
        return RowTopic(_one_of_bytes(topic, feature, declared), feature, size, ())
    shape = declared.shape if declared else None
    dtype = (declared.dtype if declared else "") or feature.kind
    if feature.kind == "bytes" or size > MOST_DIMENSIONS:
        return RowTopic(TopicInfo(topic, "other", num_rows, encoding=dtype), feature, size, shape)
    names = tuple(f"{topic.rpartition('/')[2]}_{number}" for number in range(size))
    return RowTopic(TopicInfo(topic, "vector", num_rows, names, encoding=dtype), feature, size, shape)


def _one_of_bytes(topic: str, feature: Feature, declared: Declared | None) -> TopicInfo:
    """Pictures, by what features.json says or by how the first one begins; else texts or mere bytes."""
    num_rows = len(feature)
    first = next((bytes(item) for item in feature.items if len(item)), b"")
    if first.startswith((JPEG, PNG)) or (declared and declared.dtype == "image" and num_rows):
        still = still_info(first, where=f"topic '{topic}'")
        if first.startswith(PNG) and first[PNG_BIT_DEPTH] == 16:
            # distances, nothing to look at
            return TopicInfo(topic, "other", num_rows, encoding="png of 16 bits")
        return TopicInfo(topic, "image", num_rows, (), still.width, still.height, still.encoding)
    kind: Literal["image", "other"] = "image" if declared and declared.dtype == "image" else "other"
    dtype = declared.dtype if declared and declared.dtype != "text" else ""
    return TopicInfo(topic, kind, num_rows, encoding=dtype or _bytes_kind(feature))


def _bytes_kind(feature: Feature) -> str:
    try:
        for item in feature.items:
            str(item, "utf-8")
    except UnicodeDecodeError:
        return "bytes"
    return "text"
