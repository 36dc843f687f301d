from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from small_corpus import SIZE, Stretch, action_of, build, grey_of, state_of
from torch.utils.data import DataLoader

from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import BadInput, EpisodeError
from dyna_train.loader import EpisodeDataset, EpisodeSampler
from dyna_train.manifest import Manifest
from dyna_train.window import WindowSpec, window_rows

SPEC = WindowSpec(frames=(-3, 0, 2), state=(-1, 0), action=tuple(range(6)))
STRETCHES = (Stretch(0, 0, 9), Stretch(0, 12, 12), Stretch(1, 0, 17), Stretch(2, 4, 20))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return build(tmp_path_factory.mktemp("corpus"), stretches=STRETCHES)


@pytest.fixture
def dataset(corpus):
    return EpisodeDataset(Manifest.open(corpus.manifest), SPEC)


def places(corpus):
    """(stretch, step) of every anchor in order."""
    return [(one, one.start_step + place) for one in corpus.stretches for place in range(one.num_steps)]


def equal(one, other):
    """Two batches or samples hold the same."""
    assert one.keys() == other.keys()
    for key, value in one.items():
        same = torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key]
        assert same, key


def test_every_anchor_gives_the_frames_states_and_actions_of_its_steps(corpus, dataset):
    assert len(dataset) == sum(one.num_steps for one in corpus.stretches)
    assert dataset.cameras == ("left", "right")
    for anchor, (stretch, step) in enumerate(places(corpus)):
        sample = dataset[anchor]
        edges = {"start": stretch.start_step, "stop": stretch.start_step + stretch.num_steps}
        assert (sample["anchor"], sample["step"], sample["episode_id"]) == (
            anchor,
            step,
            100 + stretch.episode,
        )
        assert sample["task"] == f"task {stretch.episode}" == dataset.manifest.tasks[sample["task_index"]]
        rows, is_pad = window_rows(step, SPEC.frames, **edges)
        assert sample["frames"].shape == (2, 3, *SIZE, 3) and sample["frames"].dtype == torch.uint8
        seen = sample["frames"].float().mean(dim=(2, 3, 4)).numpy()
        expected = np.array([[grey_of(camera, row) for row in rows] for camera in range(2)])
        assert np.abs(seen - expected).max() < 1.5, (anchor, seen, expected)
        assert sample["frames_is_pad"].tolist() == is_pad.tolist()
        for key, values, offsets in [("state", state_of, SPEC.state), ("action", action_of, SPEC.action)]:
            rows, is_pad = window_rows(step, offsets, **edges)
            assert torch.equal(sample[key], torch.from_numpy(values(stretch.episode, 30)[rows]))
            assert sample[f"{key}_is_pad"].tolist() == is_pad.tolist()


@pytest.mark.parametrize(("context", "workers"), [(None, 0), ("fork", 2), ("spawn", 2)])
def test_a_stock_dataloader_gives_equal_batches_forked_spawned_and_in_process(
    corpus, dataset, context, workers
):
    manifest = dataset.manifest
    dataset[0]  # files stand open before the fork
    loader = DataLoader(
        dataset,
        batch_sampler=EpisodeSampler(manifest, batch_size=8, seed=1),
        num_workers=workers,
        multiprocessing_context=context,
    )
    expected_from = EpisodeDataset(manifest, SPEC)
    batches = list(zip(loader, EpisodeSampler(manifest, batch_size=8, seed=1), strict=True))
    assert len(batches) == len(dataset) // 8
    for batch, anchors in batches:
        equal(batch, torch.utils.data.default_collate([expected_from[anchor] for anchor in anchors]))


def test_a_stock_dataloader_shuffles_by_itself_too(dataset):
    loader = DataLoader(dataset, batch_size=7, shuffle=True, generator=torch.Generator().manual_seed(0))
    seen = [anchor for batch in loader for anchor in batch["anchor"].tolist()]
    assert sorted(seen) == list(range(len(dataset)))


def test_windows_of_one_batch_share_each_decoded_gop(corpus, dataset):
    anchors = [3, 4, 5, 6, 3]
    together = dataset.__getitems__(anchors)
    (episode,) = dataset._episodes.values()
    shared = episode.counters.decoded
    alone = EpisodeDataset(dataset.manifest, SPEC)
    for anchor, sample in zip(anchors, together, strict=True):
        equal(sample, alone[anchor])
    (episode,) = alone._episodes.values()
    assert shared <= 2 * 10  # both cameras once through the two GOPs that steps 0..8 touch
    assert shared * 2 < episode.counters.decoded


def test_no_more_episodes_stay_open_than_asked_for(corpus):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, num_open=2)
    for anchor in [0, 25, 45, 0, 10, 30, 57]:
        dataset[anchor]
        assert len(dataset._episodes) <= 2
    before = len(os.listdir("/proc/self/fd"))
    for anchor in range(len(dataset)):
        dataset[anchor]
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_pickled_dataset_carries_no_open_file_and_gives_the_same(dataset):
    sample = dataset[40]
    data = pickle.dumps(dataset)
    assert len(data) < 4000
    equal(pickle.loads(data)[40], sample)


def test_frames_are_scaled_to_the_size_asked_for(corpus):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, size=(20, 30))
    assert dataset.size == (20, 30)
    frames = dataset[4]["frames"]
    assert frames.shape == (2, 3, 20, 30, 3)
    assert abs(frames[0, 1].float().mean() - grey_of(0, 4)) < 2.5


def test_cameras_are_chosen_and_ordered_by_the_window(corpus):
    spec = WindowSpec(frames=(0,), cameras=("right",))
    sample = EpisodeDataset(Manifest.open(corpus.manifest), spec)[5]
    assert abs(sample["frames"].float().mean() - grey_of(1, 5)) < 1.5


@pytest.mark.parametrize("spec", [WindowSpec(frames=()), WindowSpec(frames=(0, 1), cameras=())])
def test_a_window_without_frames_decodes_nothing(corpus, spec):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), spec)
    sample = dataset[0]
    assert sample["frames"].shape[:2] == (len(dataset.cameras), len(spec.frames))
    (episode,) = dataset._episodes.values()
    assert episode.counters.decoded == 0


def test_a_camera_the_manifest_lacks_is_refused_at_construction(corpus):
    with pytest.raises(BadInput, match="has no camera wrist; its cameras: left, right"):
        EpisodeDataset(Manifest.open(corpus.manifest), WindowSpec(cameras=("left", "wrist")))


def test_cameras_of_different_size_need_a_size(tmp_path):
    mixed = build(tmp_path, lengths=(6,), cameras=(CameraTrack("left", 64, 48), CameraTrack("top", 32, 32)))
    manifest = Manifest.open(mixed.manifest)
    with pytest.raises(BadInput, match=r"left 48x64, top 32x32\).*give size=\(height, width\)"):
        EpisodeDataset(manifest, SPEC)
    assert EpisodeDataset(manifest, SPEC, size=(16, 16))[0]["frames"].shape == (2, 3, 16, 16, 3)
    assert EpisodeDataset(manifest, WindowSpec(cameras=("top",)))[0]["frames"].shape == (1, 1, 32, 32, 3)


def test_a_missing_episode_file_names_row_uri_and_what_to_do(tmp_path):
    corpus = build(tmp_path, lengths=(6, 6))
    corpus.uris[1].unlink()
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC)
    dataset[5]
    message = rf"row 1 \(episode 101\): .*{corpus.uris[1].name}.*say where with root=\.\.\."
    with pytest.raises(EpisodeError, match=message):
        dataset[6]
    loader = DataLoader(dataset, batch_size=2, num_workers=1)
    with pytest.raises(EpisodeError, match=message):
        list(loader)


def test_episode_files_may_be_read_from_another_root(tmp_path):
    corpus = build(tmp_path / "here", lengths=(6,))
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "episodes").rename(tmp_path / "there" / "episodes")
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, root=str(tmp_path / "there"))
    assert dataset[0]["episode_id"] == 100


def test_a_row_that_runs_past_its_episode_is_refused_even_where_another_row_does_not(tmp_path):
    corpus = build(tmp_path, lengths=(6,), stretches=[Stretch(0, 0, 4), Stretch(0, 4, 3)])
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC)
    dataset[0]
    with pytest.raises(EpisodeError, match=r"row 1 \(episode 100\): the row ends at step 7, .*mcap at 6\."):
        dataset[4]


@pytest.mark.parametrize(
    ("names", "size", "message"),
    [
        (("left", "wrist"), 64, "has no camera right; its cameras: left, wrist"),
        (
            ("left", "right"),
            32,
            "has frames of height=48 width=32 from left, the manifest says height=48 width=64",
        ),
    ],
)
def test_an_episode_that_contradicts_the_manifest_is_refused(tmp_path, names, size, message):
    corpus = build(tmp_path, lengths=(6,), with_tables=False)  # so that the file itself says what it holds
    cameras = [CameraTrack(name, size, 48) for name in names]
    other = build(tmp_path / "other", lengths=(6,), cameras=cameras)
    other.uris[0].replace(corpus.uris[0])
    with pytest.raises(EpisodeError, match=rf"row 0 \(episode 100\): .*mcap {message}"):
        EpisodeDataset(Manifest.open(corpus.manifest), SPEC)[0]


def test_importing_dyna_train_and_its_manifest_loads_neither_torch_nor_a_codec():
    program = (
        "import sys, dyna_train.manifest, dyna_train.window; sys.exit(len({'torch', 'av'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_batches_keep_the_order_that_was_asked_for(dataset):
    for anchors in itertools.permutations([0, 30, 50]):
        assert [sample["anchor"] for sample in dataset.__getitems__(list(anchors))] == list(anchors)
