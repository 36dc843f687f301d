"""The manifest: one uncompressed Arrow IPC file that lists the rows of one experiment.

A row is a stretch of one episode (an episode can have several). Every step of every row is an *anchor*:
a place where a window can stand. Anchors are numbered from 0 in row order.

    dataset       dictionary<int32, string>   name of the data set
    shard         int32                       number of the shard the episode file lies in
    episode_id    int64                       as the catalog gave it
    content_hash  uint64                      first 8 bytes, big-endian, of the episode file's sha256
    start_step    int32                       first step of the stretch
    num_steps     int32                       its length, at least 1
    task          dictionary<int32, string>   the instruction
    cum_steps     int64                       running total that includes this row: row i holds the
                                              anchors [cum_steps[i] - num_steps[i], cum_steps[i])

Record batches hold BATCH_ROWS rows each (the last one fewer), so that a row's place is arithmetic.
What is known before the first row (features, statistics, query, table versions) is JSON in the schema
metadata. What is known only after the last one (totals, content hash) is JSON in the metadata of a
closing batch without rows: Arrow fixes schema and footer metadata when the writer opens, so this is what
keeps writing to one streaming pass, and any Arrow reader still reads the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pydantic import Field, FiniteFloat, model_validator

from dyna_train.config import Config
from dyna_train.episode.tracks import Tracks

FORMAT = "dyna.manifest/1"
BATCH_ROWS = 1_048_576
HEAD_KEY, TAIL_KEY = b"dyna.manifest", b"dyna.manifest.totals"
_TEXT = pa.dictionary(pa.int32(), pa.string())
INPUT_SCHEMA = pa.schema(
    [
        pa.field("dataset", _TEXT, nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("episode_id", pa.int64(), nullable=False),
        pa.field("content_hash", pa.uint64(), nullable=False),
        pa.field("start_step", pa.int32(), nullable=False),
        pa.field("num_steps", pa.int32(), nullable=False),
        pa.field("task", _TEXT, nullable=False),
    ]
)
TEXT_COLUMNS = ("dataset", "task")
SCHEMA = INPUT_SCHEMA.append(pa.field("cum_steps", pa.int64(), nullable=False))


class Camera(Config):
    """Size of a camera's frames in pixels."""

    height: int = Field(gt=0)
    width: int = Field(gt=0)


class Features(Config):
    """What every row offers: cameras by name, one name per dimension of state and action, the grid."""

    cameras: dict[str, Camera]
    state: tuple[str, ...]
    action: tuple[str, ...]
    rate_hz: FiniteFloat = Field(gt=0)

    @classmethod
    def of(cls, tracks: Tracks) -> Features:
        """What an episode offers; dimensions are named `<vector>.<name>`, in the order of its file."""
        names: dict[str, list[str]] = {"state": [], "action": []}
        for vector in tracks.vectors:
            names[vector.role] += [f"{vector.name}.{name}" for name in vector.names]
        return cls(
            cameras={track.name: Camera(height=track.height, width=track.width) for track in tracks.cameras},
            state=tuple(names["state"]),
            action=tuple(names["action"]),
            rate_hz=tracks.rate_hz,
        )


class VectorStatistics(Config):
    """Per dimension, over the valid steps of all episodes that have a row, in the unit of the vector."""

    mean: tuple[FiniteFloat, ...]
    std: tuple[FiniteFloat, ...]
    min: tuple[FiniteFloat, ...]
    max: tuple[FiniteFloat, ...]


class Statistics(Config):
    """Statistics of the two vectors."""

    state: VectorStatistics
    action: VectorStatistics


class ManifestInfo(Config):
    """What is known of a manifest before its first row.

    root: URI below which the episode files lie as `episodes/<shard key>/<id>-<hash>.mcap`. query and
    table_versions repeat the curation.
    """

    name: str = ""
    root: str
    features: Features
    statistics: Statistics
    query: str = ""
    table_versions: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _statistics_cover_the_features(self) -> ManifestInfo:
        for vector in ("state", "action"):
            num_dims = len(getattr(self.features, vector))
            for key, values in getattr(self.statistics, vector).model_dump().items():
                if len(values) != num_dims:
                    raise ValueError(
                        f"statistics.{vector}.{key} has {len(values)} values, features {num_dims}"
                    )
        return self


class Totals(Config):
    """What is known after the last row; sha256 is over the rows, info_sha256 over the schema metadata."""

    num_rows: int = Field(ge=0)
    num_steps: int = Field(ge=0)
    batch_rows: int = Field(gt=0)
    sha256: str
    info_sha256: str


class RowHash:
    """sha256 of rows as they stream past: per column over its little-endian values, then over all.

    Texts count as their indices and, at the end, their dictionary, so batching does not matter.
    """

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in SCHEMA.names}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in a batch of SCHEMA."""
        for name, column_hash in self._columns.items():
            column_hash.update(plain(batch.column(name)).to_numpy(zero_copy_only=True))

    def close(self, texts: Mapping[str, Sequence[str]]) -> str:
        """The hash in hex, with the dictionaries of the text columns."""
        whole = hashlib.sha256(json.dumps({name: list(texts[name]) for name in TEXT_COLUMNS}).encode())
        for column_hash in self._columns.values():
            whole.update(column_hash.digest())
        return whole.hexdigest()


def plain(column: pa.Array) -> pa.Array:
    """Numbers of a column: the indices of a text column, any other as it is."""
    return column.indices if isinstance(column, pa.DictionaryArray) else column
