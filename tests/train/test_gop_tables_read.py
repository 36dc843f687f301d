"""Training by GOP tables: one request a sample instead of a look at the footer, and no frame by a stale table."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from small_corpus import Stretch, build, tables_of

from dyna_train.episode.span import Span
from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import CorruptEpisode, EpisodeError, TruncatedEpisode
from dyna_train.loader import EpisodeDataset
from dyna_train.manifest import Manifest, fetch_manifest, gop_tables_path
from dyna_train.manifest.gop_tables import write_gop_tables
from dyna_train.window import WindowSpec

SPEC = WindowSpec(frames=(-3, 0, 2), state=(-1, 0), action=tuple(range(6)))


class CountedFileSystem(MemoryFileSystem):
    """A remote store that notes every read, and can make readers wait until so many are under way."""

    protocol = "counted"
    store: dict = {}  # noqa: RUF012 (fsspec's own way to share one store)
    reads: list[tuple[str, int | None, int | None]] = []  # noqa: RUF012
    barrier: threading.Barrier | None = None

    def cat_file(self, path, start=None, end=None, **kwargs):
        type(self).reads.append((path, start, end))
        if type(self).barrier is not None:
            type(self).barrier.wait()
        return super().cat_file(path, start=start, end=end, **kwargs)


fsspec.register_implementation("counted", CountedFileSystem)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sixteen episodes."""
    return build(tmp_path_factory.mktemp("corpus"), lengths=(12,) * 16)


@pytest.fixture
def remote(corpus):
    """The corpus on a store that counts."""
    CountedFileSystem.store.clear()
    CountedFileSystem.reads, CountedFileSystem.barrier = [], None
    fs = fsspec.filesystem("counted")
    for path in corpus.uris:
        fs.pipe_file(f"counted://corpus/{path.relative_to(corpus.root)}", path.read_bytes())
    return "counted://corpus"


def equal(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        same = torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key]
        assert same, key


def test_a_sample_with_its_table_held_costs_one_request_and_no_look_at_the_footer(corpus, remote):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, root=remote)
    for number, anchor in enumerate(range(5, len(dataset), 12), 1):
        sample = dataset[anchor]
        assert len(CountedFileSystem.reads) == number
        path, start, end = CountedFileSystem.reads[-1]
        assert str(sample["episode_id"]) in path
        assert 0 < start < end < corpus.uris[number - 1].stat().st_size - 3000  # the summary lies behind
    (first, *_) = dataset._episodes.values()
    assert (first.counters.requests, first._tail) == (1, None)


def test_a_batch_of_16_from_16_files_is_16_requests_under_way_together(corpus, remote):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, root=remote)
    CountedFileSystem.barrier = threading.Barrier(16, timeout=30)  # passes nobody until 16 have asked
    samples = dataset.__getitems__(list(range(5, len(dataset), 12)))
    assert len(CountedFileSystem.reads) == len({path for path, _, _ in CountedFileSystem.reads}) == 16
    assert [sample["episode_id"] for sample in samples] == [100 + number for number in range(16)]


def test_without_tables_an_episode_costs_its_tail_too(tmp_path, remote, corpus):
    fetched = fetch_manifest(fsspec.filesystem("file"), str(corpus.manifest), tmp_path / "m.arrow")
    Path(gop_tables_path(fetched)).unlink()
    dataset = EpisodeDataset(Manifest.open(fetched), SPEC, root=remote)
    dataset[5], dataset[6]
    assert len(CountedFileSystem.reads) == 3


def test_samples_with_tables_equal_those_without_bit_for_bit(tmp_path):
    stretches = (Stretch(0, 0, 9), Stretch(0, 12, 12), Stretch(1, 0, 17))
    lengths = (24, 17)
    held = build(tmp_path / "held", lengths=lengths, stretches=stretches)
    bare = build(tmp_path / "bare", lengths=lengths, stretches=stretches, with_tables=False)
    one, other = (EpisodeDataset(Manifest.open(each.manifest), SPEC) for each in (held, bare))
    anchors = list(range(len(one)))
    for sample, expected in zip(one.__getitems__(anchors), other.__getitems__(anchors), strict=True):
        equal(sample, expected)
    for anchor in anchors:
        equal(one[anchor], other[anchor])
    assert all(episode._tail is None for episode in one._episodes.values())


def test_a_single_window_decodes_no_frame_beyond_its_last_in_each_gop(corpus):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), WindowSpec(frames=(-3, 0, 2)))
    dataset[5]  # steps 2, 5 and 7 at GOP 5: three frames of the first, three of the second
    (episode,) = dataset._episodes.values()
    assert (episode.counters.decoded, episode.counters.kept) == (2 * 6, 2 * 3)


def test_a_batch_over_more_episodes_than_stay_open_is_read_in_one_round(corpus, remote):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, root=remote, num_open=3)
    CountedFileSystem.barrier = threading.Barrier(16, timeout=30)
    samples = dataset.__getitems__(list(range(0, len(dataset), 12)))
    assert len(samples) == 16
    assert len(dataset._episodes) == 3


def test_nothing_of_a_batch_stays_in_memory_but_its_samples(corpus):
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC)
    kept = dataset.__getitems__([3, 4, 40, 41])
    assert len(kept) == 4
    assert not [one for one in gc.get_objects() if type(one) is Span]


def test_a_replaced_episode_file_is_corrupt_and_named_with_its_row(tmp_path):
    corpus = build(tmp_path, lengths=(12, 12))
    other = build(tmp_path / "other", lengths=(24, 12), cameras=[CameraTrack("left", 96, 48)])
    other.uris[0].replace(corpus.uris[1])
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC)
    assert dataset[3]["episode_id"] == 100
    with pytest.raises(
        CorruptEpisode,
        match=rf"manifest\.arrow: row 1 \(episode 101\): .*{corpus.uris[1].name}: GOP of steps",
    ):
        dataset.__getitems__([3, 12])


@pytest.mark.parametrize("spec", [SPEC, WindowSpec(frames=(), state=(0,), action=())])
def test_a_cut_episode_file_is_named_with_its_row_in_a_batch(tmp_path, spec):
    corpus = build(tmp_path, lengths=(12, 12))
    os.truncate(corpus.uris[1], 900)
    with pytest.raises(
        TruncatedEpisode, match=rf"row 1 \(episode 101\): .*{corpus.uris[1].name}: file ends at"
    ):
        EpisodeDataset(Manifest.open(corpus.manifest), spec).__getitems__([0, 12])


def test_an_absent_object_is_named_with_its_row_in_a_batch(corpus, remote):
    fs = fsspec.filesystem("counted")
    fs.rm(f"counted://corpus/{corpus.uris[1].relative_to(corpus.root)}")
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC, root=remote)
    with pytest.raises(
        EpisodeError,
        match=rf"row 1 \(episode 101\): .*{corpus.uris[1].name}: no such.*say where with root=\.\.\.",
    ):
        dataset.__getitems__([0, 12])


def test_the_table_of_another_episode_gives_an_error_and_no_frame(tmp_path):
    corpus = build(tmp_path, lengths=(12, 13))
    manifest = Manifest.open(corpus.manifest)
    known = [(tracks.to_json(), table.to_bytes()) for tracks, table in (manifest.gops(1), manifest.gops(0))]
    write_gop_tables(gop_tables_path(corpus.manifest), [tables_of(known)], totals=manifest.totals)
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC)
    for anchor, row in ((0, 0), (14, 1)):
        with pytest.raises(EpisodeError, match=rf"row {row} \(episode {100 + row}\): "):
            dataset[anchor]


def test_a_damaged_table_is_named_with_row_and_episode(tmp_path):
    corpus = build(tmp_path, lengths=(12, 13))
    path = Path(gop_tables_path(corpus.manifest))
    table = Manifest.open(corpus.manifest).gops(1).table.to_bytes()
    data = bytearray(path.read_bytes())
    data[data.index(table) + 30] ^= 4
    path.write_bytes(data)
    dataset = EpisodeDataset(Manifest.open(corpus.manifest), SPEC)
    assert dataset[0]["episode_id"] == 100
    with pytest.raises(
        CorruptEpisode, match=r"row 1 \(episode 101\): .*gops\.arrow: row 1: its GOP table has crc"
    ):
        dataset[12]
