"""The warehouse's tables: grain, columns, units.

Every table is append-only: appends to a shard are numbered (`seq`, the same for the rows of a step and
their stamps), and an episode's current row is that with the highest `seq`. `bucket` = shard number // 256 is the Delta
partition. Times are int64 ns since the epoch; a recording without a wall clock counts from 0.

A verdict is about the evidence of one append (`evidence_seq`), and so is the stamp of its gate (`result_seq`). A
policy that judges the same evidence otherwise appends a new verdict, and a new stamp where the row is
rejected now or no longer: both keep pointing to that evidence. So the current verdict of an episode and gate is the
newest one about the append that the current stamp points to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dyna_assets.quality.registry import CHECKS

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
    """One Delta table: `grain` says what a row is; `columns` come after bucket, shard, episode_id, seq.

    key: what a current row is current for. is_list: an episode has several of them.
    """

    name: str
    grain: str
    columns: tuple[tuple[str, pa.DataType], ...]
    key: str = "episode_id"
    is_list: bool = False

    @property
    def has_many(self) -> bool:
        """True if an episode can have several current rows."""
        return self.is_list or self.key != "episode_id"

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
        ("facts", pa.string()),  # JSON: what the checks before the transform judge
    ),
)
EPISODES = Table(
    "episodes",
    "One row per episode file: where it is, what is in it, and the sums over its valid steps for statistics.",
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
        (
            "valid_starts",
            pa.list_(pa.int32()),
        ),  # steps; where everything was seen within the source's max_gap_s
        ("valid_ends", pa.list_(pa.int32())),
        ("cameras", _NAMES),
        ("camera_heights", pa.list_(pa.int32())),
        ("camera_widths", pa.list_(pa.int32())),
        ("max_skew_s", pa.list_(pa.float64())),  # per camera: how far from the instant its frame was at most
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
        ("tracks", pa.string()),  # JSON, see dyna_train.episode.tracks.Tracks
        ("gop_table", pa.binary()),  # see dyna_train.episode.index.GopTable
    ),
)
READBACKS = Table(
    "readbacks",
    "One row per episode file that was read back: facts of its cameras and state, which the gate after measures.",
    (("content_hash", pa.string()), ("facts", pa.string())),  # JSON, see dyna_assets.quality.after
)
QC_EVIDENCE = Table(
    "qc_evidence",
    "One row per episode and gate: what each check measured. A column per check: its worst subject's value, NULL: "
    "not checked.",
    (
        ("source", pa.string()),
        ("gate", pa.string()),  # before | after
        ("details", pa.string()),  # JSON: check -> version, and per subject value, spans, note
        *((rule.column, pa.float64()) for rule in CHECKS.values()),
    ),
    key="episode_id, gate",
    is_list=True,
)
VERDICTS = Table(
    "verdicts",
    "One row per episode and gate: what a policy makes of the evidence.",
    (
        ("source", pa.string()),
        ("gate", pa.string()),  # before | after
        ("evidence_seq", pa.int64()),  # of the row of `qc_evidence` that was judged
        ("policy", pa.string()),  # name@version
        ("verdict", pa.string()),  # pass | warn | reject
        ("warned", _NAMES),  # checks beyond their limit to warn, and not beyond that to reject
        ("rejected", _NAMES),
        ("num_checked", pa.int32()),
        ("num_checks", pa.int32()),
        ("reason", pa.string()),
    ),
    key="episode_id, gate",
    is_list=True,
)
TRACES = Table(
    "traces",
    "One row per episode file and camera: per step what its picture is like, see dyna_assets.quality.trace.",
    (
        ("content_hash", pa.string()),  # of the episode file
        ("camera", pa.string()),
        ("trace", pa.binary()),
    ),
    is_list=True,
)
ACCOUNTS = Table(
    "accounts",
    "One row per recording and topic: what came in, and what became of it.",
    (
        ("source", pa.string()),
        ("name", pa.string()),
        ("upload", pa.string()),
        ("topic", pa.string()),
        ("kind", pa.string()),  # image | vector | other
        ("encoding", pa.string()),
        ("use", pa.string()),  # role | extra | ignored | unmapped
        ("role", pa.string()),  # camera | state | action, and its name; '' without a role
        ("num_in", pa.int64()),  # messages, pictures or rows in the recording
        ("num_used", pa.int64()),  # of these, how many stand in the episode, each counted once
        ("num_outside", pa.int64()),  # before the common start or after the common end
        ("num_surplus", pa.int64()),  # inside, but between two instants of the grid
    ),
    is_list=True,
)
LABELS = Table(
    "labels",
    "One row per episode and labelling: task text and success as the recording or its upload states them.",
    (("task", pa.string()), ("success", pa.bool_()), ("origin", pa.string())),
)
ANNOTATIONS = Table(
    "annotations",
    "One row per fact that a labeller found: a number, a text, a stretch of time.",
    (
        ("labeller", pa.string()),
        ("labeller_version", pa.int32()),
        (
            "status",
            pa.string(),
        ),  # ok | error: then `text` says why, and there is no other row of this labeller
        ("subject", pa.string()),  # the camera, vector or joint; '' for the whole episode
        ("key", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("text", pa.string()),
        ("start_s", pa.float64()),  # since the episode's start; NULL where it is about all of it
        ("end_s", pa.float64()),
    ),
    is_list=True,
)
MEDIA = Table(
    "media",
    "One row per picture or film made of an episode to look at.",
    (
        ("content_hash", pa.string()),  # of the episode file
        ("kind", pa.string()),  # thumbnail | sheet | preview | page
        ("path", pa.string()),  # below the lake
        ("size_bytes", pa.int64()),
    ),
    is_list=True,
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
        ("result_seq", pa.int64()),  # of the append that holds what the step made
        ("status", pa.string()),  # ok | rejected | error
        ("reason", pa.string()),
        ("schema_version", pa.int32()),
        ("pipeline_version", pa.string()),
        ("robot_software_version", pa.string()),
        ("profile", pa.string()),
        ("run_id", pa.string()),
        ("processed_ns", pa.int64()),
    ),
    key="episode_id, step",
    is_list=True,
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RECORDINGS,
        ACCOUNTS,
        EPISODES,
        GOP_TABLES,
        TRACES,
        READBACKS,
        QC_EVIDENCE,
        VERDICTS,
        LABELS,
        ANNOTATIONS,
        MEDIA,
        VERSION_STAMPS,
    )
}


def bucket_of(shard: int) -> int:
    """The Delta partition of a shard."""
    return shard // SHARDS_PER_BUCKET
