"""The reader on S3: real HTTP requests to moto's server, also from a forked worker."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import fsspec
import numpy as np
import pytest
from episode_samples import read_painting, write_painted

from dyna_train.episode.reader import Episode
from dyna_train.errors import EpisodeError, TruncatedEpisode

pytest.importorskip("s3fs", reason="s3fs comes with the assets extra")
moto_server = pytest.importorskip("moto.server", reason="moto comes with the dev extra")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory) -> Iterator[fsspec.AbstractFileSystem]:
    path = tmp_path_factory.mktemp("episode") / "painted.mcap"
    write_painted(path, 60)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = fsspec.filesystem("s3", key="k", secret="s", endpoint_url=f"http://{host}:{port}")
    store.mkdir("corpus")
    store.pipe_file("corpus/episodes/whole.mcap", path.read_bytes())
    store.pipe_file("corpus/episodes/cut.mcap", path.read_bytes()[:20_000])
    yield store
    server.stop()


def test_an_episode_on_s3_opens_with_one_suffix_request_and_reads_its_frames(bucket):
    with Episode.open("s3://corpus/episodes/whole.mcap", fs=bucket) as episode:
        assert episode.counters.requests == 1
        assert [read_painting(frame) for frame in episode.frames("top", [59, 3])] == [(59, 0), (3, 0)]
        assert episode.state_TD.shape == (60, 4)
        assert episode.counters.requests == 3


def _read(episode: Episode, results) -> None:
    results.put([read_painting(frame) for frame in episode.frames("right_wrist", [31])])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_worker_reads_s3_with_connections_of_its_own(bucket):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with Episode.open("s3://corpus/episodes/whole.mcap", fs=bucket) as episode:
        assert np.isfinite(episode.state_TD).all()
        worker = context.Process(target=_read, args=(episode, results))
        worker.start()
        assert results.get(timeout=60) == [(31, 2)]
        worker.join()


def test_absent_and_cut_objects_raise_their_errors(bucket):
    with pytest.raises(EpisodeError, match=r"s3://corpus/none\.mcap: no such episode file"):
        Episode.open("s3://corpus/none.mcap", fs=bucket)
    with pytest.raises(
        TruncatedEpisode, match=r"cut\.mcap: file ends at byte 20,000, inside the CHUNK record"
    ):
        Episode.open("s3://corpus/episodes/cut.mcap", fs=bucket)
