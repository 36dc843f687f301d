"""metadata.yaml, which stands beside a ROS 2 bag's files and says which they are and what they hold."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named, open_file
from dyna_train.errors import MissingExtra

try:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
except ImportError as error:
    raise MissingExtra.of("ruamel.yaml", "assets", "Reading ROS 2 bags") from error

METADATA = "metadata.yaml"
ROOT = "rosbag2_bagfile_information"
MAX_BYTES = 16 << 20
STORAGES = ("sqlite3", "mcap")
CDR = "cdr"


@dataclass(frozen=True, slots=True)
class BagTopic:
    """One topic as metadata.yaml lists it."""

    name: str
    type: str
    serialization: str
    num_messages: int


@dataclass(frozen=True, slots=True)
class BagMetadata:
    """What metadata.yaml says. files: names in the bag's folder, in order. compression: '', 'file' or 'message'.

    custom: pairs that the recorder was given.
    """

    storage: str
    files: tuple[str, ...]
    topics: tuple[BagTopic, ...]
    compression: str = ""
    ros_distro: str = ""
    custom: Mapping[str, str] = field(default_factory=dict)

    def num_messages(self) -> Counter[str]:
        """Messages by topic."""
        counts: Counter[str] = Counter()
        for topic in self.topics:
            counts[topic.name] += topic.num_messages
        return counts


def is_bag_metadata(folder: Folder, name: str) -> bool:
    """True if the file begins as a bag's metadata.yaml does; other things are called so too."""
    with folder.open(name) as file:
        return ROOT.encode() in file.read(4096)


def read_metadata(folder: Folder, name: str) -> BagMetadata:
    """The metadata in the file `name`. Raises RecordingError naming what is wrong, or what is not supported."""
    where = folder.at(name)
    with (
        open_file(folder, name) as file,
        damage_named(
            (YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError),
            lambda error: f"{where}: no metadata of a ROS 2 bag: {_reason(error)}",
        ),
    ):
        text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise RecordingError(
                f"{where}: over {MAX_BYTES:,} bytes of YAML, expected the metadata of one bag"
            )
        found = YAML(typ="safe").load(text)
        if not isinstance(found, Mapping) or not isinstance(found.get(ROOT), Mapping):
            raise RecordingError(f"{where}: expected the key {ROOT}, found {str(found)[:80]}")
        metadata = _metadata(found[ROOT])
    _check_supported(metadata, found[ROOT].get("compression_format"), where)
    return metadata


def _metadata(values: Mapping[str, Any]) -> BagMetadata:
    lacking = [
        key
        for key in ("storage_identifier", "relative_file_paths", "topics_with_message_count")
        if key not in values
    ]
    if lacking:
        raise KeyError(", ".join(lacking))
    mode = str(values.get("compression_mode") or "").lower()
    return BagMetadata(
        storage=str(values["storage_identifier"]),
        # before version 4 with the bag's own folder in front
        files=tuple(posixpath.basename(str(path)) for path in values["relative_file_paths"] or ()),
        topics=tuple(_topic(entry) for entry in values["topics_with_message_count"] or ()),
        compression="" if mode == "none" else mode,
        ros_distro=str(values.get("ros_distro") or ""),
        custom={str(key): str(value) for key, value in (values.get("custom_data") or {}).items()},
    )


def _topic(entry: Mapping[str, Any]) -> BagTopic:
    topic = entry["topic_metadata"]
    return BagTopic(
        str(topic["name"]),
        str(topic["type"]),
        str(topic["serialization_format"]),
        int(entry["message_count"]),
    )


def _check_supported(metadata: BagMetadata, compression_format: object, where: str) -> None:
    if metadata.storage not in STORAGES:
        raise RecordingError(f"{where}: storage '{metadata.storage}', expected one of {', '.join(STORAGES)}")
    if metadata.compression not in ("", "file", "message"):
        raise RecordingError(f"{where}: compression mode '{metadata.compression}', expected file or message")
    if metadata.compression and compression_format != "zstd":
        raise RecordingError(f"{where}: compressed with '{compression_format}', expected zstd")
    formats = {topic.serialization for topic in metadata.topics}
    if formats and CDR not in formats:
        raise RecordingError(
            f"{where}: serialization format '{', '.join(sorted(formats))}', expected '{CDR}'. "
            "Convert the bag with `ros2 bag convert`"
        )


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"the key {said} is missing" if isinstance(error, KeyError) else said or repr(error)
