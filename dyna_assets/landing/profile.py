"""The source profile: what a person writes about one source of recordings (TOML)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dyna_train.config import Config
from dyna_train.video.encode import QUALITIES, Quality

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


class TopicRole(Config):
    """A topic of the recordings and the name it gets in the episode file."""

    name: Name
    topic: str


class VectorRole(TopicRole):
    """A vector topic; `units` is one unit for all dimensions or one per dimension."""

    units: str | tuple[str, ...] = ""


class Grid(Config):
    """The common time grid: uniform at rate_hz."""

    rate_hz: float = Field(gt=0, le=1000)


Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]


class Gates(Config):
    """Thresholds of the quality checks. A share is of frames or rows, 0 to 1."""

    min_duration_s: Seconds = Field(default=0.5, description="reject: all topics together cover less")
    max_drop_share: Share = Field(default=0.2, description="warn: more of a camera's frames are missing")
    max_gap_s: Seconds = Field(
        default=0.5, description="reject: a camera or state is silent for longer; warn: an action"
    )
    max_length_mismatch_s: Seconds = Field(
        default=0.25, description="reject: a topic ends this long before the others"
    )
    max_unpaired_rows: int = Field(
        default=0, ge=0, description="reject: pictures and rows of a format without clocks differ by more"
    )
    dark_max_level: float = Field(
        default=16.0, description="reject: a camera's mean level (of 255) and its spread are both below"
    )
    dark_max_spread: float = Field(
        default=6.0, description="  (the spread: distance from the 1st to the 99th percentile of levels)"
    )
    frozen_repeat_share: Share = Field(
        default=0.98, description="reject: this share of frames repeats while the robot moves"
    )
    repeat_warn_share: Share = Field(default=0.35, description="warn: more frames repeat the one before")


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
    """One source: where it lands, how to read it, which topics play which role."""

    name: Name
    landing: str
    reader: str
    quiet_period_s: float | None = Field(default=None, ge=0)
    robot: str = ""
    task: str = ""
    grid: Grid
    cameras: tuple[TopicRole, ...]
    states: tuple[VectorRole, ...] = ()
    actions: tuple[VectorRole, ...] = ()
    gates: Gates = Gates()
    encoding: Encoding = Encoding()

    @model_validator(mode="after")
    def _each_name_and_topic_stands_once(self) -> SourceProfile:
        for role, topics in (("cameras", self.cameras), ("states", self.states), ("actions", self.actions)):
            names = [topic.name for topic in topics]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(
                    f"[[{role}]] names {', '.join(twice)} more than once; each needs its own name"
                )
        every = [entry.topic for entry in (*self.cameras, *self.states, *self.actions)]
        shared = sorted({topic for topic in every if every.count(topic) > 1})
        if shared:
            raise ValueError(f"topic {', '.join(shared)} has more than one role; give each topic one")
        return self
