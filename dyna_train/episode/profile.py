"""The episode profile `dyna.episode/1`: names, topics, header, and how they look as MCAP metadata.

An episode file is MCAP with topic groups that never share a chunk: `video` (all cameras), `state`
(proprioception and action vectors), `depth` (16-bit pictures, lossless), `event` (JSON, sparse) and `extra`
(topics that no pattern reads, kept as they came). Video, state and depth lie on one grid of `num_steps` steps
at `rate_hz`: `log_time` is the grid time of a step, `publish_time` the time of capture, `sequence` the step. A
camera may have no frame for some steps. Channel ids count the topics: cameras from 1, then vectors, depths,
events, extras. Ends are exclusive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.layout import EpisodeLayout
from dyna_train.errors import BadInput, CorruptEpisode

PROFILE = "dyna.episode/1"
VIDEO_GROUP = "video"
STATE_GROUP = "state"
DEPTH_GROUP = "depth"
EVENT_GROUP = "event"
EXTRA_GROUP = "extra"
EVENT_TOPIC = "/event"

RECORD_PROFILE = "dyna.profile"
RECORD_VERSIONS = "dyna.versions"
RECORD_EPISODE = "dyna.episode"
RECORD_QC = "dyna.qc"
RECORD_SYNC = "dyna.sync"

Role = Literal["state", "action"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HASH = re.compile(r"[0-9a-f]{16}|[0-9a-f]{64}")
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CameraTrack:
    """One camera: its name and the true size of its frames in pixels (odd sizes allowed)."""

    name: str
    width: int
    height: int

    @property
    def topic(self) -> str:
        """`/camera/<name>/video`."""
        return f"/camera/{self.name}/video"


@dataclass(frozen=True, slots=True)
class VectorTrack:
    """One float32 vector topic; `names` and `units` hold one entry per dimension."""

    name: str
    role: Role
    names: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def topic(self) -> str:
        """`/state/<name>` or `/action/<name>`."""
        return f"/{self.role}/{self.name}"

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class DepthTrack:
    """One depth camera: uint16 pictures of width x height pixels, in units of `unit_m` metres."""

    name: str
    width: int
    height: int
    unit_m: float = 0.001

    @property
    def topic(self) -> str:
        """`/depth/<name>`."""
        return f"/depth/{self.name}"


@dataclass(frozen=True, slots=True)
class Tracks:
    """What an episode offers on its grid: all a reader must know to find a step in its bytes."""

    rate_hz: float
    cameras: tuple[CameraTrack, ...]
    vectors: tuple[VectorTrack, ...]
    depths: tuple[DepthTrack, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics in file order: cameras, vectors, depths."""
        every: tuple[CameraTrack | VectorTrack | DepthTrack, ...]
        every = (*self.cameras, *self.vectors, *self.depths)
        return tuple(track.topic for track in every)

    def camera(self, name: str, *, where: str) -> int:
        """Number of camera `name`; raises BadInput naming `where` and the cameras there are."""
        return _number(where, "camera", name, [camera.name for camera in self.cameras])

    def vector(self, topic: str, *, where: str) -> int:
        """Number of the vector of `topic` (as `/state/<name>`); raises BadInput with the topics there are."""
        return _number(where, "vector topic", topic, [vector.topic for vector in self.vectors])

    def depth(self, name: str, *, where: str) -> int:
        """Number of depth camera `name`; raises BadInput with the names there are."""
        return _number(where, "depth camera", name, [depth.name for depth in self.depths])

    def to_json(self) -> str:
        """As text; equal tracks give equal text."""
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Tracks:
        """From `to_json`. Raises BadInput for anything else."""
        try:
            found = json.loads(text)
            vectors = [
                VectorTrack(one["name"], one["role"], tuple(one["names"]), tuple(one["units"]))
                for one in found["vectors"]
            ]
            if not {vector.role for vector in vectors} <= {"state", "action"}:
                raise ValueError(f"roles {[vector.role for vector in vectors]}")
            return cls(
                rate_hz=float(found["rate_hz"]),
                cameras=tuple(CameraTrack(**one) for one in found["cameras"]),
                vectors=tuple(vectors),
                depths=tuple(DepthTrack(**one) for one in found["depths"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"not the tracks of an episode: {error!r}: {text[:80]}") from error


@dataclass(frozen=True, slots=True)
class EpisodeHeader:
    """What an episode file says of itself.

    start_ns: grid time of step 0, ns since the epoch. rate_hz: steps per second. success: None where
    nobody said. versions: `schema_version`, `pipeline_version`, ... quality: verdicts of the gates.
    Raises BadInput naming the episode and the field that cannot be.
    """

    episode_id: int
    source: str
    name: str
    robot: str
    task: str
    success: bool | None
    start_ns: int
    rate_hz: float
    num_steps: int
    cameras: tuple[CameraTrack, ...]
    vectors: tuple[VectorTrack, ...]
    versions: Mapping[str, str]
    quality: Mapping[str, str]
    depths: tuple[DepthTrack, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a header that no file could keep."""
        faults = list(_faults(self))
        if faults:
            raise BadInput(f"episode {self.episode_id} ('{self.name}'): {'; '.join(faults)}")

    @property
    def tracks(self) -> Tracks:
        """What the episode offers on its grid."""
        return Tracks(self.rate_hz, self.cameras, self.vectors, self.depths)

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics on the grid in file order: cameras, vectors, depths."""
        return self.tracks.topics


def step_time_ns(start_ns: int, rate_hz: float, step: int) -> int:
    """Grid time of `step` in ns: start + step / rate, rounded to the nearest ns (halves up), exactly."""
    rate = Fraction(rate_hz)
    return start_ns + (2 * step * _SECOND_NS * rate.denominator + rate.numerator) // (2 * rate.numerator)


def grid_times_ns(start_ns: int, rate_hz: float, num_steps: int) -> NDArray[np.int64]:
    """Grid times of steps 0 .. num_steps, int64 [T] ns; equal to `step_time_ns` of each."""
    rate = Fraction(rate_hz)
    scale, half, twice = 2 * _SECOND_NS * rate.denominator, rate.numerator, 2 * rate.numerator
    times = [start_ns + (step * scale + half) // twice for step in range(num_steps)]
    return np.array(times, dtype=np.int64)


def shard_key(number: int) -> str:
    """Key of shard `number`, as it stands in object names and names a partition: shard-000012."""
    return f"shard-{number:06d}"


def episode_path(shard_key: str, episode_id: int, content_hash: str) -> str:
    """The object name of an episode file, from the sha256 of its bytes: all 64 hex digits or the first 16.

    Immutable objects: other content is another name. Raises BadInput for anything but such a hash.
    """
    if not _HASH.fullmatch(content_hash):
        raise BadInput(
            f"content hash of episode {episode_id}: expected 16 or 64 hex digits, found {content_hash!r}"
        )
    return f"episodes/{shard_key}/{episode_id}-{content_hash[:16]}.mcap"


def _number(where: str, kind: str, name: str, known: list[str]) -> int:
    if name not in known:
        raise BadInput(f"{where}: no {kind} '{name}'; its {kind}s: {', '.join(known) or 'none'}")
    return known.index(name)


def _faults(header: EpisodeHeader) -> Iterator[str]:
    topics = header.topics
    if not topics:
        yield "it has neither cameras nor vectors nor depths; expected at least one"
    for topic in sorted({topic for topic in topics if topics.count(topic) > 1}):
        yield f"topic {topic} stands twice; every topic needs its own name"
    if header.num_steps < 1:
        yield f"num_steps = {header.num_steps}, expected at least 1"
    if not 0 < header.rate_hz < float("inf"):
        yield f"rate_hz = {header.rate_hz}, expected a positive number"
    if header.start_ns < 0:
        yield f"start_ns = {header.start_ns}, expected 0 or more"
    for camera in header.cameras:
        if not _NAME.fullmatch(camera.name) or camera.width < 1 or camera.height < 1:
            yield f"camera '{camera.name}' of {camera.width}x{camera.height} needs a plain name and a size"
    for depth in header.depths:
        if not _NAME.fullmatch(depth.name) or min(depth.width, depth.height) < 1 or not depth.unit_m > 0:
            yield (
                f"depth camera '{depth.name}' of {depth.width}x{depth.height} pixels in units of "
                f"{depth.unit_m} m needs a plain name, a size and a unit above 0"
            )
    for vector in header.vectors:
        if not _NAME.fullmatch(vector.name) or vector.role not in ("state", "action") or not vector.names:
            yield f"vector {vector.topic} of {vector.dim} dimensions needs a plain name, a role, a dimension"
        if len(vector.units) != vector.dim:
            yield f"vector {vector.topic} has {vector.dim} names but {len(vector.units)} units"


def episode_records(header: EpisodeHeader, layout: EpisodeLayout) -> dict[str, dict[str, str]]:
    """The metadata records that carry header and layout, by name; the header's tracks live in the channels."""
    success = {None: "", True: "true", False: "false"}[header.success]
    name, version = PROFILE.split("/")
    return {
        RECORD_PROFILE: {
            "name": name,
            "version": version,
            **{cut: str(steps) for cut, steps in asdict(layout).items()},
        },
        RECORD_VERSIONS: dict(header.versions),
        RECORD_EPISODE: {
            "episode_id": str(header.episode_id),
            "source": header.source,
            "name": header.name,
            "robot": header.robot,
            "task": header.task,
            "success": success,
            "start_ns": str(header.start_ns),
            "rate_hz": repr(float(header.rate_hz)),
            "num_steps": str(header.num_steps),
        },
        RECORD_QC: dict(header.quality),
    }


def read_layout(record: Mapping[str, str]) -> EpisodeLayout | None:
    """The layout that a dyna.profile record states; None if it states none that could be."""
    try:
        return EpisodeLayout(**{cut.name: int(record[cut.name]) for cut in fields(EpisodeLayout)})
    except (KeyError, ValueError):
        return None


def camera_metadata(camera: CameraTrack, rate_hz: float, gop: int, codec_params: str) -> dict[str, str]:
    """Channel metadata of a camera; codec_params: what the encoder was told, or where a copy comes from."""
    return {
        "group": VIDEO_GROUP,
        "rate_hz": repr(float(rate_hz)),
        "fps": repr(float(rate_hz)),
        "width": str(camera.width),
        "height": str(camera.height),
        "gop": str(gop),
        "codec_params": codec_params,
    }


def vector_metadata(vector: VectorTrack, rate_hz: float) -> dict[str, str]:
    """Channel metadata of a vector; names and units are JSON lists."""
    return {
        "group": STATE_GROUP,
        "rate_hz": repr(float(rate_hz)),
        "dim": str(vector.dim),
        "names": json.dumps(vector.names, ensure_ascii=False),
        "units": json.dumps(vector.units, ensure_ascii=False),
    }


def depth_metadata(depth: DepthTrack, rate_hz: float) -> dict[str, str]:
    """Channel metadata of a depth camera."""
    return {
        "group": DEPTH_GROUP,
        "rate_hz": repr(float(rate_hz)),
        "width": str(depth.width),
        "height": str(depth.height),
        "unit_m": repr(float(depth.unit_m)),
    }


def read_header(
    uri: str, channels: Mapping[str, Mapping[str, str]], records: Mapping[str, Mapping[str, str]]
) -> EpisodeHeader:
    """The header from channel metadata by topic (in file order) and metadata records by name.

    Raises CorruptEpisode naming the record or topic that is absent or not what the profile says.
    """
    found = records.get(RECORD_PROFILE, {})
    if f"{found.get('name')}/{found.get('version')}" != PROFILE:
        raise CorruptEpisode(
            f"{uri}: expected profile {PROFILE}, found {dict(found) or 'no dyna.profile record'}; "
            "another tool may have rewritten the file"
        )
    try:
        return _header(channels, records)
    except (KeyError, ValueError) as error:
        raise CorruptEpisode(f"{uri}: metadata does not describe a {PROFILE} file: {error!r}") from error


def _header(
    channels: Mapping[str, Mapping[str, str]], records: Mapping[str, Mapping[str, str]]
) -> EpisodeHeader:
    episode = records[RECORD_EPISODE]
    success = {"": None, "true": True, "false": False}[episode["success"]]
    return EpisodeHeader(
        episode_id=int(episode["episode_id"]),
        source=episode["source"],
        name=episode["name"],
        robot=episode["robot"],
        task=episode["task"],
        success=success,
        start_ns=int(episode["start_ns"]),
        rate_hz=float(episode["rate_hz"]),
        num_steps=int(episode["num_steps"]),
        cameras=tuple(
            CameraTrack(topic.split("/")[2], int(metadata["width"]), int(metadata["height"]))
            for topic, metadata in channels.items()
            if metadata["group"] == VIDEO_GROUP
        ),
        vectors=tuple(
            _vector(topic, metadata)
            for topic, metadata in channels.items()
            if metadata["group"] == STATE_GROUP
        ),
        depths=tuple(
            DepthTrack(
                topic.split("/")[2],
                int(metadata["width"]),
                int(metadata["height"]),
                float(metadata["unit_m"]),
            )
            for topic, metadata in channels.items()
            if metadata["group"] == DEPTH_GROUP
        ),
        versions=dict(records[RECORD_VERSIONS]),
        quality=dict(records[RECORD_QC]),
    )


def _vector(topic: str, metadata: Mapping[str, str]) -> VectorTrack:
    _, role, name = topic.split("/")
    names, units = json.loads(metadata["names"]), json.loads(metadata["units"])
    return VectorTrack(name, cast(Role, role), tuple(names), tuple(units))
