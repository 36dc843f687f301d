"""The source profile: what a person writes about one source of recordings (TOML)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from dyna_assets.derive import DerivedRole, check_derived
from dyna_assets.labels.options import LabelOptions
from dyna_assets.names import Name, repeated
from dyna_assets.quality.registry import Limits, known_limits
from dyna_train.config import Config
from dyna_train.errors import ConfigError
from dyna_train.video.encode import QUALITIES, Quality

Align = Literal["causal", "nearest", "interpolate"]
Role = Literal["camera", "state", "action"]


class TopicRole(Config):
    """A topic of the recordings, the name it gets in the episode file, and how it comes onto the grid.

    align: 'causal' takes the latest message at or before the instant, 'nearest' the nearest one, which
    may come after it. latency_ms: how much later than the world the sensor's stamps are; they are moved back.
    """

    role: ClassVar[Role]
    name: Name
    topic: str
    align: Align = "causal"
    latency_ms: float = Field(default=0.0, ge=-10_000, le=10_000)

    @property
    def key(self) -> str:
        """Its name among all of an episode's signals, as 'state/left_arm'."""
        return f"{self.role}/{self.name}"


class CameraRole(TopicRole):
    """A camera; its pictures are taken, never mixed."""

    role = "camera"
    align: Literal["causal", "nearest"] = "causal"


class VectorRole(TopicRole):
    """A vector that the robot measures.

    align 'interpolate': linear between the neighbours; angles (unit 'rad' or 'deg') over the shorter way, and
    quaternions (four dimensions in a row of unit 'quat') by slerp. units: one for all dimensions or one per
    dimension. range: the lowest and highest value that can be true. confidence: the topic of detected
    keypoints' confidence (0 to 1); rows without a detection may then hold NaN, and the last detection is held.
    """

    role: ClassVar[Literal["state", "action"]] = "state"
    units: str | tuple[str, ...] = ""
    range: tuple[float, float] | None = None
    confidence: str = ""


class ActionRole(VectorRole):
    """A vector that the robot is told: a command holds until the next one."""

    role = "action"
    align: Literal["causal", "nearest"] = "causal"


class Grid(Config):
    """The common time grid: uniform at rate_hz, or the frames of the camera `reference`.

    max_gap_s: what is older than this at an instant is not held but missing: the steps are invalid.
    """

    rate_hz: float = Field(ge=0.001, le=1000)
    reference: str = ""
    max_gap_s: float = Field(default=0.5, gt=0)


class Encoding(Config):
    """How the episode file is encoded: the read pattern it serves, and what it is kept for."""

    pattern: Literal["vla", "mixed", "wam"] = Field(
        default="mixed", description="how training reads it: single frames, both, or whole stretches"
    )
    quality: Literal["archive", "default", "train", "train-fast"] = Field(
        default="default",
        description="crf 16, 18, 22; train-fast: 20, decodes in half the time, +25 % bytes. Video that is already "
        "H.264 with closed GOPs of one length is copied as it is",
    )
    crf: int | None = Field(default=None, ge=0, le=51, description="a crf of your own, lower is better")

    @property
    def chosen(self) -> Quality:
        """What the encoder is told."""
        named = QUALITIES[self.quality]
        return named if self.crf is None else replace(named, crf=self.crf)


class SourceProfile(Config):
    """One source: where it lands, how to read it, which topics play which role.

    extra: patterns of topics and columns that are kept as they came, in the file's `extra` group. ignore: patterns
    of topics, columns and files that are known and left out. What neither a role, `extra` nor `ignore`
    names is unmapped, and warned of. gates: limits of this source, before those of the policy.
    """

    name: Name
    landing: str
    reader: str
    quiet_period_s: float | None = Field(default=None, ge=0)
    robot: str = ""
    task: str = ""
    grid: Grid
    extra: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    reader_options: Mapping[str, Any] = Field(default_factory=dict)
    cameras: tuple[CameraRole, ...]
    states: tuple[VectorRole, ...] = ()
    actions: tuple[ActionRole, ...] = ()
    derived: tuple[DerivedRole, ...] = ()
    gates: Mapping[str, Limits] = Field(default_factory=dict)
    encoding: Encoding = Encoding()
    labels: LabelOptions = LabelOptions()

    @field_validator("gates")
    @classmethod
    def _of_known_checks(cls, gates: Mapping[str, Limits]) -> Mapping[str, Limits]:
        return known_limits(gates)

    @property
    def vectors(self) -> tuple[VectorRole, ...]:
        """States, then actions."""
        return (*self.states, *self.actions)

    @property
    def topic_roles(self) -> tuple[TopicRole, ...]:
        """Cameras, states, then actions."""
        return (*self.cameras, *self.vectors)

    def use_of(self, name: str) -> Literal["role", "extra", "ignored", "unmapped"]:
        """What becomes of a topic, column or file of this name (patterns as in a shell)."""
        if name in {role.topic for role in self.topic_roles} | {role.confidence for role in self.vectors}:
            return "role"
        if any(fnmatchcase(name, pattern) for pattern in self.extra):
            return "extra"
        return "ignored" if any(fnmatchcase(name, pattern) for pattern in self.ignore) else "unmapped"

    @model_validator(mode="after")
    def _derives_from_what_is_there(self) -> SourceProfile:
        try:
            check_derived(self.derived, {role.key: role.units for role in self.vectors})
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _reference_is_a_camera(self) -> SourceProfile:
        names = [camera.name for camera in self.cameras]
        if self.grid.reference and self.grid.reference not in names:
            raise ValueError(
                f"grid.reference '{self.grid.reference}' is no camera; cameras: {', '.join(names) or 'none'}"
            )
        return self

    @model_validator(mode="after")
    def _each_name_and_topic_stands_once(self) -> SourceProfile:
        for role, topics in (("cameras", self.cameras), ("states", self.states), ("actions", self.actions)):
            twice = repeated(topic.name for topic in topics)
            if twice:
                raise ValueError(
                    f"[[{role}]] names {', '.join(twice)} more than once; each needs its own name"
                )
        every = [role.topic for role in self.topic_roles]
        if not every:
            raise ValueError("no topic has a role; an episode needs a camera, a state or an action")
        shared = repeated(every)
        if shared:
            raise ValueError(f"topic {', '.join(shared)} has more than one role; give each topic one")
        return self
