"""Training samples out of episode files, as a map-style torch dataset over anchors.

Axes: N cameras, T frame offsets, S state offsets, A action offsets, D dimensions, H W pixels, C channels.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dyna_train.episode.reader import Episode
from dyna_train.episode.span import ReadPlan, Span, fetch
from dyna_train.episode.tracks import Tracks
from dyna_train.errors import BadInput, EpisodeError
from dyna_train.manifest import Features, Manifest, ManifestRow
from dyna_train.window import WindowSpec, window_rows

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
    stretch of video that several windows share is decoded once, and read in one round of parallel requests.
    An episode whose GOP table travels beside the manifest is read where its bytes lie, without a look at
    its end.
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
        keeps open from batch to batch. Raises BadInput for a camera the manifest lacks, and for unequal sizes
        without `size`; ManifestError for GOP tables that belong to another manifest.
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
        _ = manifest.gop_tables  # those of another manifest are refused here rather than by a worker

    def __len__(self) -> int:
        """Number of anchors."""
        return self.manifest.num_steps

    def __getitem__(self, anchor: int) -> Sample:
        """The window around `anchor`. Raises IndexError outside the manifest, EpisodeError for its file."""
        return self.__getitems__([anchor])[0]

    def __getitems__(self, anchors: Sequence[int]) -> list[Sample]:
        """The windows around `anchors`, in that order; what a DataLoader calls with a whole batch.

        What they need of all their files is fetched together, and dropped when the batch is made.
        """
        windows = self._windows(anchors)
        groups = [_Group(self._episode(uri, here[0].row), here) for uri, here in self._by_episode(windows)]
        spans = self._fetch(groups)
        samples: dict[int, Sample] = {}
        for group in groups:
            span = spans.pop(0)
            with self._naming(group.windows[0].row):
                samples |= self._samples(span, group.windows)
        while len(self._episodes) > self._num_open:
            self._episodes.popitem(last=False)[1].close()
        return [samples[place] for place in range(len(windows))]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open files: a spawned worker opens its own."""
        return {**self.__dict__, "_episodes": OrderedDict(), "_pid": -1}

    def _windows(self, anchors: Sequence[int]) -> list[_Window]:
        rows, steps = self.manifest.locate(np.asarray(anchors, dtype=np.int64))
        return [
            _Window.of(self.spec, place, anchor, self.manifest.row(int(row)), int(step))
            for place, (anchor, row, step) in enumerate(zip(anchors, rows, steps, strict=True))
        ]

    def _by_episode(self, windows: list[_Window]) -> Iterable[tuple[str, list[_Window]]]:
        groups: dict[str, list[_Window]] = {}
        for one in windows:
            groups.setdefault(self.manifest.episode_uri(one.row.index, self._root), []).append(one)
        return groups.items()

    def _episode(self, uri: str, row: ManifestRow) -> Episode:
        """The open episode; the one used last is the last of all."""
        if self._pid != os.getpid():  # after a fork: connections and counters are the parent's
            self._episodes, self._pid = OrderedDict(), os.getpid()
        if uri not in self._episodes:
            self._episodes[uri] = self._opened(uri, row)
        self._episodes.move_to_end(uri)
        return self._episodes[uri]

    def _opened(self, uri: str, row: ManifestRow) -> Episode:
        """Opened without a read where the manifest has its GOP table, else by its tail."""
        with self._naming(row):
            gops = self.manifest.gops(row.index)
            episode = Episode.open(uri) if gops is None else Episode.open_at(uri, *gops)
        expected = self.manifest.info.features
        fault = _fault(episode.tracks, expected, self.cameras, resizes=self._resize is not None)
        if fault:
            episode.close()
            raise EpisodeError(
                f"{self._where(row)}: {uri} {fault}. Curate robots and grids of one kind into a manifest"
            )
        return episode

    def _fetch(self, groups: Sequence[_Group]) -> list[Span]:
        """The bytes of all windows: one round of requests over all files."""
        for group in groups:
            for one in group.windows:
                self._check_extent(group.episode, one.row)
        plans = [self._plan(group) for group in groups]
        try:
            return fetch(plans)
        except EpisodeError:
            for group, plan in zip(groups, plans, strict=True):  # whose it is: ask one by one
                with self._naming(group.windows[0].row):
                    fetch([plan])
            raise

    def _plan(self, group: _Group) -> ReadPlan:
        rows = [one.frames.rows for one in group.windows] if self.cameras else []
        vectors = [part.rows for one in group.windows for part in (one.state, one.action)]
        return group.episode.plan(
            frame_steps=np.concatenate([*rows, np.empty(0, np.int64)]), state_steps=np.concatenate(vectors)
        )

    def _check_extent(self, episode: Episode, row: ManifestRow) -> None:
        stop = row.start_step + row.num_steps
        if stop > episode.num_steps:
            raise EpisodeError(
                f"{self._where(row)}: the row ends at step {stop}, {episode.uri} at {episode.num_steps}. Curate "
                "the manifest again"
            )

    def _where(self, row: ManifestRow) -> str:
        return f"{self.manifest.path}: row {row.index} (episode {row.episode_id})"

    @contextmanager
    def _naming(self, row: ManifestRow) -> Iterator[None]:
        """Put the manifest row in front of what is wrong with its episode file."""
        try:
            yield
        except EpisodeError as error:
            absent = isinstance(error.__cause__, FileNotFoundError)
            raise type(error)(f"{self._where(row)}: {error}{_ABSENT if absent else ''}") from error

    def _samples(self, span: Span, windows: Sequence[_Window]) -> dict[int, Sample]:
        """The samples of one episode, by their places in the batch."""
        shape = (len(self.cameras), len(self.spec.frames), *self.size, 3)
        frames = [np.empty(shape, np.uint8) for _ in windows]
        for number, camera in enumerate(self.cameras if self.spec.frames else ()):
            self._fill([frames_NTHWC[number] for frames_NTHWC in frames], span, camera, windows)
            span.drop_frames()
        return {
            one.place: self._sample(span, one, frames_NTHWC)
            for one, frames_NTHWC in zip(windows, frames, strict=True)
        }

    def _fill(
        self, frames: Sequence[NDArray[np.uint8]], span: Span, camera: str, windows: Sequence[_Window]
    ) -> None:
        """Write the frames of one camera, uint8 [T, H, W, 3] for each window; a step is converted once."""
        if len(windows) == 1:  # nobody to share with: into place without a copy
            span.frames(camera, windows[0].frames.rows, self._resize, out=frames[0])
            return
        rows_GT = np.stack([one.frames.rows for one in windows])
        steps_U, place_of = np.unique(rows_GT, return_inverse=True)
        frames_UHWC = span.frames(camera, steps_U, self._resize)
        for out, places_T in zip(frames, place_of.reshape(rows_GT.shape), strict=True):
            np.take(frames_UHWC, places_T, axis=0, out=out, mode="clip")  # the other mode copies twice

    def _sample(self, span: Span, one: _Window, frames_NTHWC: NDArray[np.uint8]) -> Sample:
        return Sample(
            frames=torch.from_numpy(frames_NTHWC),
            frames_is_pad=torch.from_numpy(one.frames.is_pad),
            state=torch.from_numpy(span.state(one.state.rows)),
            state_is_pad=torch.from_numpy(one.state.is_pad),
            action=torch.from_numpy(span.action(one.action.rows)),
            action_is_pad=torch.from_numpy(one.action.is_pad),
            task=one.row.task,
            task_index=one.row.task_index,
            episode_id=one.row.episode_id,
            step=one.step,
            anchor=one.anchor,
        )


class _Taken(NamedTuple):
    """The steps that one part of a window takes: int64 [H], and bool [H] where it left the row."""

    rows: NDArray[np.int64]
    is_pad: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Window:
    """One sample of a batch: its place there, where its anchor lies, and which steps it takes."""

    place: int
    anchor: int
    row: ManifestRow
    step: int
    frames: _Taken
    state: _Taken
    action: _Taken

    @classmethod
    def of(cls, spec: WindowSpec, place: int, anchor: int, row: ManifestRow, step: int) -> _Window:
        stop = row.start_step + row.num_steps
        parts = (
            _Taken(*window_rows(step, offsets, start=row.start_step, stop=stop))
            for offsets in (spec.frames, spec.state, spec.action)
        )
        return cls(place, anchor, row, step, *parts)


class _Group(NamedTuple):
    """The windows of a batch that lie in one episode."""

    episode: Episode
    windows: list[_Window]


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


def _fault(tracks: Tracks, expected: Features, cameras: Sequence[str], resizes: bool) -> str:
    """What in an episode file contradicts the manifest; '' for nothing."""
    found = Features.of(tracks)
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
