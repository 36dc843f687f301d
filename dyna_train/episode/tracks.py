"""What an episode offers on its grid: cameras, vectors and depth cameras, with their topics and sizes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from dyna_train.errors import BadInput

Role = Literal["state", "action"]


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

    def channel_id(self, topic: str) -> int:
        """The id of the channel of `topic`: channels are numbered from 1 in file order, those on the grid first.

        So a reader that holds the tracks can tell the messages of a piece apart without the file's channels.
        """
        return self.topics.index(topic) + 1

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


def _number(where: str, kind: str, name: str, known: list[str]) -> int:
    if name not in known:
        raise BadInput(f"{where}: no {kind} '{name}'; its {kind}s: {', '.join(known) or 'none'}")
    return known.index(name)
