"""Training samples out of episode files, as a map-style torch dataset over anchors.

Axes: N cameras, T frame offsets, S state offsets, A action offsets, D dimensions, H W pixels, C channels.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput, EpisodeError
from dyna_train.manifest import Features, Manifest, ManifestRow
from dyna_train.window import WindowSpec, gather_window, window_rows

_ABSENT = (
    ". If the files lie elsewhere, say where with root=...; if they were deleted, curate the manifest again"
)


class Sample(TypedDict):
    """One window. Offsets that leave the manifest row repeat its nearest step and are marked `_is_pad`."""

    frames: torch.Tensor  # uint8 [N, T, H, W, 3], RGB
    frames_is_pad: torch.Tensor  # bool [T]
    state: torch.Tensor  # float32 [S, D], in the episode's units
    state_is_pad: torch.Tensor  # bool [S]
    action: torch.Tensor  # float32 [A, D]
    action_is_pad: torch.Tensor  # bool [A]
    task: str
    task_index: int  # into manifest.tasks
    episode_id: int
    step: int  # of the episode
    anchor: int  # of the manifest


class EpisodeDataset(Dataset[Sample]):
    """Window around every anchor of a manifest: index = anchor, 0 <= anchor < manifest.num_steps.

    Works in a stock DataLoader, forked or spawned. A batch (`__getitems__`) is grouped by episode, so a
    stretch of video that several windows share is decoded once.
    """

    def __init__(
        self,
        manifest: Manifest,
        spec: WindowSpec,
        *,
        size: tuple[int, int] | None = None,
        root: str | None = None,
        num_open: int = 32,
    ) -> None:
        """size: (height, width) that all frames are scaled to; None keeps the cameras' own, if equal.

        root: where the episode files lie, if not where the manifest says. num_open: episodes each worker
        keeps open. Raises BadInput for a camera the manifest lacks, and for unequal sizes without `size`.
        """
        self.manifest = manifest
        self.spec = spec
        self.cameras = _cameras(manifest, spec)
        self.size = _common_size(manifest, self.cameras) if size is None else size
        self._resize = size
        self._root = root
        self._num_open = num_open
        self._episodes: OrderedDict[str, Episode] = OrderedDict()
        self._pid = os.getpid()

    def __len__(self) -> int:
        """Number of anchors."""
        return self.manifest.num_steps

    def __getitem__(self, anchor: int) -> Sample:
        """The window around `anchor`. Raises IndexError outside the manifest, EpisodeError for its file."""
        return self.__getitems__([anchor])[0]

    def __getitems__(self, anchors: Sequence[int]) -> list[Sample]:
        """The windows around `anchors`, in that order; what a DataLoader calls with a whole batch."""
        rows, steps = self.manifest.locate(np.asarray(anchors, dtype=np.int64))
        asked = [
            _Asked(place, anchor, self.manifest.row(int(row)), int(step))
            for place, (anchor, row, step) in enumerate(zip(anchors, rows, steps, strict=True))
        ]
        samples: dict[int, Sample] = {}
        for uri, group in self._by_episode(asked).items():
            episode = self._episode(uri, group[0].row)
            for one in group:
                self._check_extent(episode, one.row)
            frames = self._frames(episode, group)
            for one, frames_NTHWC in zip(group, frames, strict=True):
                samples[one.place] = self._sample(episode, one, frames_NTHWC)
        return [samples[place] for place in range(len(asked))]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open files: a spawned worker opens its own."""
        return {**self.__dict__, "_episodes": OrderedDict(), "_pid": -1}

    def _by_episode(self, asked: list[_Asked]) -> dict[str, list[_Asked]]:
        groups: dict[str, list[_Asked]] = {}
        for one in asked:
            groups.setdefault(self.manifest.episode_uri(one.row.index, self._root), []).append(one)
        return groups

    def _episode(self, uri: str, row: ManifestRow) -> Episode:
        """The open episode, and room for it among the `num_open` used last."""
        if self._pid != os.getpid():  # after a fork: the parent's handles share their file positions with us
            self._episodes, self._pid = OrderedDict(), os.getpid()
        if uri not in self._episodes:
            while len(self._episodes) >= self._num_open:
                self._episodes.popitem(last=False)[1].close()
            self._episodes[uri] = self._opened(uri, row)
        self._episodes.move_to_end(uri)
        return self._episodes[uri]

    def _opened(self, uri: str, row: ManifestRow) -> Episode:
        where = self._where(row)
        try:
            episode = Episode.open(uri)
        except EpisodeError as error:
            absent = isinstance(error.__cause__, FileNotFoundError)
            raise type(error)(f"{where}: {error}{_ABSENT if absent else ''}") from error
        expected = self.manifest.info.features
        fault = _fault(episode.header, expected, self.cameras, resizes=self._resize is not None)
        if fault:
            episode.close()
            raise EpisodeError(f"{where}: {uri} {fault}. Curate robots and grids of one kind into a manifest")
        return episode

    def _check_extent(self, episode: Episode, row: ManifestRow) -> None:
        stop = row.start_step + row.num_steps
        if stop > episode.num_steps:
            raise EpisodeError(
                f"{self._where(row)}: the row ends at step {stop}, {episode.uri} at {episode.num_steps}. Curate "
                "the manifest again"
            )

    def _where(self, row: ManifestRow) -> str:
        return f"{self.manifest.path}: row {row.index} (episode {row.episode_id})"

    def _frames(self, episode: Episode, group: list[_Asked]) -> list[NDArray[np.uint8]]:
        """uint8 [N, T, H, W, 3] for each of `group`; every distinct step is read once per camera."""
        rows = np.array([self._rows(one, self.spec.frames)[0] for one in group], dtype=np.int64)
        steps, place_of = np.unique(rows, return_inverse=True)
        places_GT = place_of.reshape(rows.shape)
        if not (self.cameras and steps.size):
            return [np.zeros((len(self.cameras), len(self.spec.frames), *self.size, 3), np.uint8)] * len(
                group
            )
        frames = [episode.frames(camera, steps, self._resize) for camera in self.cameras]
        return [np.stack([frames_UHWC[places] for frames_UHWC in frames]) for places in places_GT]

    def _sample(self, episode: Episode, one: _Asked, frames_NTHWC: NDArray[np.uint8]) -> Sample:
        start, stop = one.row.start_step, one.row.start_step + one.row.num_steps
        state_SD, state_is_pad = gather_window(
            episode.state_TD, one.step, self.spec.state, start=start, stop=stop
        )
        action_AD, action_is_pad = gather_window(
            episode.action_TA, one.step, self.spec.action, start=start, stop=stop
        )
        return Sample(
            frames=torch.from_numpy(frames_NTHWC),
            frames_is_pad=torch.from_numpy(self._rows(one, self.spec.frames)[1]),
            state=torch.from_numpy(state_SD),
            state_is_pad=torch.from_numpy(state_is_pad),
            action=torch.from_numpy(action_AD),
            action_is_pad=torch.from_numpy(action_is_pad),
            task=one.row.task,
            task_index=one.row.task_index,
            episode_id=one.row.episode_id,
            step=one.step,
            anchor=one.anchor,
        )

    @staticmethod
    def _rows(one: _Asked, offsets: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        start = one.row.start_step
        return window_rows(one.step, offsets, start=start, stop=start + one.row.num_steps)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One sample of a batch: its place there, and where its anchor lies."""

    place: int
    anchor: int
    row: ManifestRow
    step: int


def _cameras(manifest: Manifest, spec: WindowSpec) -> tuple[str, ...]:
    """The cameras of the window, all of them in the manifest."""
    known = tuple(manifest.info.features.cameras)
    wanted = known if spec.cameras is None else spec.cameras
    missing = [camera for camera in wanted if camera not in known]
    if missing:
        raise BadInput(
            f"{manifest.path}: has no camera {', '.join(missing)}; its cameras: {', '.join(known) or 'none'}"
        )
    return wanted


def _common_size(manifest: Manifest, cameras: Sequence[str]) -> tuple[int, int]:
    """(height, width) that all `cameras` share; (0, 0) without any."""
    sizes = {name: manifest.info.features.cameras[name] for name in cameras}
    distinct = {(camera.height, camera.width) for camera in sizes.values()}
    if len(distinct) > 1:
        listed = ", ".join(f"{name} {camera.height}x{camera.width}" for name, camera in sizes.items())
        raise BadInput(
            f"{manifest.path}: its cameras differ in size (height x width: {listed}) and one batch holds "
            "frames of one size; give size=(height, width), or choose cameras of equal size in the window"
        )
    return distinct.pop() if distinct else (0, 0)


def _fault(header: EpisodeHeader, expected: Features, cameras: Sequence[str], resizes: bool) -> str:
    """What in an episode file contradicts the manifest; '' for nothing."""
    found = Features.of(header)
    for key in ("rate_hz", "state", "action"):
        if getattr(found, key) != getattr(expected, key):
            return f"has {key} {getattr(found, key)}, the manifest says {getattr(expected, key)}"
    for name in cameras:
        camera = found.cameras.get(name)
        if camera is None:
            return f"has no camera {name}; its cameras: {', '.join(found.cameras) or 'none'}"
        if not resizes and camera != expected.cameras[name]:
            return f"has frames of {camera} from {name}, the manifest says {expected.cameras[name]}"
    return ""
