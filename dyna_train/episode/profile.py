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
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.tracks import CameraTrack, DepthTrack, Role, Tracks, VectorTrack
from dyna_train.episode.values import is_number, is_text, is_texts, is_truth, is_whole
from dyna_train.errors import BadInput, CorruptEpisode

PROFILE = "dyna.episode/1"
VIDEO_GROUP = "video"
STATE_GROUP = "state"
DEPTH_GROUP = "depth"
EVENT_GROUP = "event"
EXTRA_GROUP = "extra"
GRID_GROUPS = (VIDEO_GROUP, STATE_GROUP, DEPTH_GROUP)
GROUPS = (*GRID_GROUPS, EVENT_GROUP, EXTRA_GROUP)
"""In the order of their channel ids."""
EVENT_TOPIC = "/event"

RECORD_PROFILE = "dyna.profile"
RECORD_VERSIONS = "dyna.versions"
RECORD_EPISODE = "dyna.episode"
RECORD_QC = "dyna.qc"
RECORD_SYNC = "dyna.sync"

SECOND_NS = 1_000_000_000
MAX_NS = (1 << 63) - 1
"""The last time that int64 holds, in the year 2262."""
RATES_HZ = (1e-3, 1e6)
"""From a step every 17 minutes to one every microsecond; grid times of both are exact and distinct."""
MAX_STEPS = 1 << 32
"""A message counts its step in 32 bits."""
MISSING_NS = -1
"""Capture time of a step at which a camera has no frame."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""What cameras and vectors are called, as a part of their topics."""


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
            raise BadInput(f"episode {self.episode_id!r} ({self.name!r}): {'; '.join(faults)}")

    @property
    def tracks(self) -> Tracks:
        """What the episode offers on its grid."""
        return Tracks(self.rate_hz, self.cameras, self.vectors, self.depths)

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics on the grid in file order: cameras, vectors, depths."""
        return self.tracks.topics


def grid_ns_of(start_ns: int, rate_hz: float, steps: Iterable[int]) -> list[int]:
    """Grid time of each of `steps` in ns: start + step / rate, rounded to the nearest ns (halves up), exactly."""
    rate = Fraction(rate_hz)
    scale, half, twice = 2 * SECOND_NS * rate.denominator, rate.numerator, 2 * rate.numerator
    return [start_ns + (step * scale + half) // twice for step in steps]


def step_time_ns(start_ns: int, rate_hz: float, step: int) -> int:
    """Grid time of `step` in ns; see `grid_ns_of`."""
    (time_ns,) = grid_ns_of(start_ns, rate_hz, [step])
    return time_ns


def grid_times_ns(start_ns: int, rate_hz: float, num_steps: int) -> NDArray[np.int64]:
    """Grid times of steps 0 .. num_steps, int64 [T] ns: exactly those of `grid_ns_of`, without a loop over steps.

    step * 1e9 / rate, rounded, needs more than 64 bits. So blocks of steps, short enough for int64, are counted from
    the exact whole and remainder of their first step.
    """
    period = SECOND_NS / Fraction(rate_hz)
    twice = 2 * period.denominator
    whole, rest = divmod(2 * period.numerator, twice)
    length = min(max(num_steps, 1), (MAX_NS - twice) // max(rest, 1) + 1)
    firsts = range(0, num_steps, length)
    at_first = np.array([divmod(first * rest + period.denominator, twice) for first in firsts], np.int64)
    start_B1, rest_B1 = np.hsplit(at_first.reshape(-1, 2), 2)
    step_L = np.arange(length, dtype=np.int64)
    times_T = (start_B1 + (rest_B1 + step_L * rest) // twice).ravel()[:num_steps]
    return np.asarray(start_ns + times_T + np.arange(num_steps, dtype=np.int64) * whole)


def _faults(header: EpisodeHeader) -> Iterator[str]:
    wrong_types = [*_wrong_types(header), *_wrong_track_types(header)]
    yield from wrong_types or _wrong_values(header)


def _wrong_types(header: EpisodeHeader) -> Iterator[str]:
    for field in ("episode_id", "start_ns", "num_steps"):
        if not is_whole(value := getattr(header, field)):
            yield f"{field} = {value!r}, expected a whole number"
    if not is_number(header.rate_hz):
        yield f"rate_hz = {header.rate_hz!r}, expected a number"
    if not (header.success is None or is_truth(header.success)):
        yield f"success = {header.success!r}, expected True, False or None"
    for field in ("source", "name", "robot", "task"):
        if not is_text(value := getattr(header, field)):
            yield f"{field} = {value!r}, expected text that UTF-8 can say"
    for field in ("versions", "quality"):
        if not is_texts(value := getattr(header, field)):
            yield f"{field} = {value!r}, expected a mapping of texts that UTF-8 can say"


def _wrong_track_types(header: EpisodeHeader) -> Iterator[str]:
    pictures: tuple[CameraTrack | DepthTrack, ...] = (*header.cameras, *header.depths)
    for track in pictures:
        if not (is_text(track.name) and is_whole(track.width) and is_whole(track.height)):
            yield f"camera {track.name!r} of {track.width!r} x {track.height!r}: expected a name and whole numbers"
    for depth in header.depths:
        if not is_number(depth.unit_m):
            yield f"depth camera {depth.name!r} in units of {depth.unit_m!r} m: expected a number"
    for vector in header.vectors:
        if not all(map(is_text, (vector.name, vector.role, *vector.names, *vector.units))):
            yield (
                f"vector {vector.name!r} with names {vector.names!r} and units {vector.units!r}: expected texts "
                "that UTF-8 can say"
            )


def _wrong_values(header: EpisodeHeader) -> Iterator[str]:
    topics = header.topics
    if not topics:
        yield "it has neither cameras nor vectors nor depths; expected at least one"
    for topic in sorted({topic for topic in topics if topics.count(topic) > 1}):
        yield f"topic {topic} stands twice; every topic needs its own name"
    yield from _wrong_grid(header)
    for camera in header.cameras:
        if not NAME.fullmatch(camera.name) or camera.width < 1 or camera.height < 1:
            yield f"camera '{camera.name}' of {camera.width}x{camera.height} needs a plain name and a size"
    for depth in header.depths:
        if (
            not NAME.fullmatch(depth.name)
            or min(depth.width, depth.height) < 1
            or not 0 < depth.unit_m < math.inf
        ):
            yield (
                f"depth camera '{depth.name}' of {depth.width}x{depth.height} pixels in units of "
                f"{depth.unit_m} m needs a plain name, a size and a finite unit above 0"
            )
    for vector in header.vectors:
        if not NAME.fullmatch(vector.name) or vector.role not in ("state", "action") or not vector.names:
            yield f"vector {vector.topic} of {vector.dim} dimensions needs a plain name, a role, a dimension"
        if len(vector.units) != vector.dim:
            yield f"vector {vector.topic} has {vector.dim} names but {len(vector.units)} units"


def _wrong_grid(header: EpisodeHeader) -> Iterator[str]:
    """The steps and their times."""
    lowest, highest = RATES_HZ
    if not 1 <= header.num_steps <= MAX_STEPS:
        yield f"num_steps = {header.num_steps}, expected at least 1 and at most {MAX_STEPS:,}"
    if header.start_ns < 0:
        yield f"start_ns = {header.start_ns}, expected 0 or more"
    if not lowest <= header.rate_hz <= highest:
        yield f"rate_hz = {header.rate_hz}, expected a positive number from {lowest:g} to {highest:g}"
    elif (last_ns := step_time_ns(header.start_ns, header.rate_hz, header.num_steps - 1)) > MAX_NS:
        yield f"start_ns = {header.start_ns}: the last of {header.num_steps} steps is at {last_ns} ns, beyond int64"


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
    except (LookupError, TypeError, ValueError) as error:
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
