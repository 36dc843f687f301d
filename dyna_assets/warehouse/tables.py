"""The warehouse's tables: grain, columns, units.

Every table is append-only: appends to a shard are numbered (`seq`, the same for the rows of a step and
their stamps), and an episode's current row is that with the highest `seq`. `bucket` = shard number // 256 is the Delta
partition. Times are int64 ns since the epoch; a recording without a wall clock counts from 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SHARDS_PER_BUCKET = 256

_KEYS = [
    ("bucket", pa.int32()),
    ("shard", pa.int32()),
    ("episode_id", pa.int64()),
    ("seq", pa.int64()),
]
_NUMBERS = pa.list_(pa.float64())
_NAMES = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table: `grain` says what a row is; `columns` come after bucket, shard, episode_id, seq."""

    name: str
    grain: str
    columns: tuple[tuple[str, pa.DataType], ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, keys first."""
        return pa.schema([*_KEYS, *self.columns])


RECORDINGS = Table(
    "recordings",
    "One row per recording and probe: what its container, clocks and metadata say.",
    (
        ("source", pa.string()),
        ("name", pa.string()),
        ("upload", pa.string()),
        ("robot", pa.string()),
        ("operator", pa.string()),
        ("robot_software_version", pa.string()),
        ("kind", pa.string()),
        ("task", pa.string()),
        ("success", pa.bool_()),
        ("start_ns", pa.int64()),
        ("duration_s", pa.float64()),
        ("raw_bytes", pa.int64()),
        ("num_topics", pa.int32()),
        ("evidence", pa.string()),  # JSON: what the checks before the transform judge
    ),
)
EPISODES = Table(
    "episodes",
    "One row per episode file: where it is, what is in it, and the sums its statistics are made from.",
    (
        ("source", pa.string()),
        ("name", pa.string()),
        ("upload", pa.string()),
        ("robot", pa.string()),
        ("task", pa.string()),
        ("kind", pa.string()),
        ("robot_software_version", pa.string()),
        ("content_hash", pa.string()),  # sha256, hex; its first 16 digits stand in the file name
        ("size_bytes", pa.int64()),
        ("video_bytes", pa.int64()),
        ("raw_bytes", pa.int64()),
        ("start_ns", pa.int64()),
        ("rate_hz", pa.float64()),
        ("num_steps", pa.int32()),
        ("duration_s", pa.float64()),
        ("cameras", _NAMES),
        ("camera_heights", pa.list_(pa.int32())),
        ("camera_widths", pa.list_(pa.int32())),
        ("max_skew_s", pa.list_(pa.float64())),  # per camera: how old its frame was at most
        ("state_names", _NAMES),
        ("action_names", _NAMES),
        ("state_mean", _NUMBERS),
        ("state_m2", _NUMBERS),  # sum of squared distances from the mean
        ("state_min", _NUMBERS),
        ("state_max", _NUMBERS),
        ("action_mean", _NUMBERS),
        ("action_m2", _NUMBERS),
        ("action_min", _NUMBERS),
        ("action_max", _NUMBERS),
    ),
)
GOP_TABLES = Table(
    "gop_tables",
    "One row per episode file: what its grid offers and where its GOPs lie, to travel beside a manifest.",
    # A table of its own, so that the rows of `episodes`, which people query, stay small. Files of an older
    # pipeline have no row here; they are opened by their tails.
    (
        ("content_hash", pa.string()),  # of the file that this is true of, as in `episodes`
        ("tracks", pa.string()),  # JSON, see dyna_train.episode.profile.Tracks
        ("gop_table", pa.binary()),  # see dyna_train.episode.index.GopTable
    ),
)
QC_VERDICTS = Table(
    "qc_verdicts",
    "One row per episode, gate and check: the value found, the threshold, the verdict and its reason.",
    (
        ("gate", pa.string()),  # before | after
        ("check", pa.string()),
        ("check_version", pa.int32()),
        ("subject", pa.string()),  # the camera or topic, '' for the whole episode
        ("verdict", pa.string()),  # pass | warn | reject
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("unit", pa.string()),
        ("reason", pa.string()),
    ),
)
READBACKS = Table(
    "readbacks",
    "One row per episode file that was read back: what its frames show, which the gate after judges.",
    (("evidence", pa.string()),),  # JSON, see dyna_assets.quality.after
)
LABELS = Table(
    "labels",
    "One row per episode and labelling: task text and success as the recording or its upload states them.",
    (("task", pa.string()), ("success", pa.bool_()), ("origin", pa.string())),
)
VERSION_STAMPS = Table(
    "version_stamps",
    "One row per episode, step and processing: versions, input, and how it ended.",
    (
        ("source", pa.string()),
        ("name", pa.string()),
        ("step", pa.string()),
        ("step_version", pa.string()),
        ("fingerprint", pa.string()),
        ("reads", pa.string()),  # 'step=fingerprint' of what it was made from
        ("input_hash", pa.string()),
        ("status", pa.string()),  # ok | rejected | error
        ("reason", pa.string()),
        ("schema_version", pa.int32()),
        ("pipeline_version", pa.string()),
        ("robot_software_version", pa.string()),
        ("profile", pa.string()),
        ("run_id", pa.string()),
        ("processed_ns", pa.int64()),
    ),
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (RECORDINGS, EPISODES, GOP_TABLES, READBACKS, QC_VERDICTS, LABELS, VERSION_STAMPS)
}


def bucket_of(shard: int) -> int:
    """The Delta partition of a shard."""
    return shard // SHARDS_PER_BUCKET
