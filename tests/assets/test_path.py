"""The whole path: landing folder -> shard run -> warehouse -> manifest -> window."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from numpy.typing import NDArray
from path_house import House, open_house
from PIL import Image

from dyna_assets import stamps
from dyna_assets.corpus import rejections
from dyna_assets.home import Home
from dyna_assets.simulate import read_paint
from dyna_train.doctor.report import examine
from dyna_train.episode.reader import Episode
from dyna_train.loader import EpisodeDataset
from dyna_train.manifest import Manifest
from dyna_train.window import WindowSpec

OFFSETS = (-20, -1, 0, 1, 7)
G1, G1_EPISODE = "g1_inspire_lerobot_v21", "episode_000001"
SO101 = "so101_sim_lerobot_v30"


def psnr(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> float:
    error = np.mean((first.astype(np.float64) - second) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def dataset_of(house: House, source: str, offsets: tuple[int, ...] = OFFSETS) -> EpisodeDataset:
    made = house.curate(source, where=f"source = '{source}'")
    spec = WindowSpec(frames=offsets, state=(0,), action=tuple(range(8)))
    return EpisodeDataset(Manifest.open(made.uri), spec)


def raw_pictures(path: Path) -> dict[str, list[tuple[int, bytes]]]:
    """camera -> (capture ns, JPEG) as the stock reader gives them."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _, channel, _, message in reader.iter_decoded_messages():
            if channel.topic.endswith("/image/compressed"):
                stamp = message.header.stamp
                taken_ns = stamp.sec * 10**9 + stamp.nanosec
                found.setdefault(channel.topic.split("/")[1], []).append((taken_ns, bytes(message.data)))
    return found


def test_every_window_shows_the_painted_frame_that_was_the_latest_at_its_instant(house: House) -> None:
    house.simulate(1, paint=True, seconds=3.0, size=(192, 256))
    house.run()
    dataset = dataset_of(house, "sim")
    (episode,) = house.rows("episodes")
    (recording,) = (house.landing / "sim").rglob("*.mcap")
    pictures = raw_pictures(recording)
    instants = episode["start_ns"] + np.round(np.arange(episode["num_steps"]) * 1e9 / episode["rate_hz"])
    checked = 0
    for anchor in range(0, len(dataset), 3):
        item = dataset[anchor]
        for camera, name in enumerate(dataset.cameras):
            taken = np.array([taken_ns for taken_ns, _ in pictures[name]])
            for place, offset in enumerate(OFFSETS):
                step = int(np.clip(anchor + offset, 0, episode["num_steps"] - 1))
                assert item["frames_is_pad"][place] == (step != anchor + offset)
                shown = read_paint(item["frames"][camera, place].numpy())
                # 0.1 ms is the aligner's tolerance: a frame that late still counts as at the instant
                assert shown == np.flatnonzero(taken <= instants[step] + 100_000)[-1]
                checked += 1
    assert checked > 3 * 5 * 25


def test_training_on_a_curated_manifest_never_reads_the_end_of_an_episode_file(full_house: House) -> None:
    made = full_house.curate(where="source = 'sim'")
    assert made.num_without_gops == 0
    assert made.info.table_versions["gop_tables"] == 1  # one append of the step
    manifest = Manifest.open(made.uri)
    dataset = EpisodeDataset(manifest, WindowSpec(frames=(0,), state=(0,), action=(0,)))
    for row in manifest.rows():
        dataset[row.stop_anchor - 1]
        gops = manifest.gops(row.index)
        assert gops is not None
        with Episode.open(manifest.episode_uri(row.index)) as episode:
            assert gops.tracks == episode.header.tracks
            assert gops.table.to_bytes() == episode.table.to_bytes()
    assert [episode.counters.requests for episode in dataset._episodes.values()] == [1, 1]


def test_the_doctor_finds_nothing_wrong_with_the_files_that_the_pipeline_makes(full_house: House) -> None:
    made = full_house.curate(where="source = 'sim'")
    manifest = Manifest.open(made.uri)
    found = [list(examine(manifest.episode_uri(row.index)).faults) for row in manifest.rows()]
    assert found == [[], []]


def test_episodes_of_an_older_lake_have_no_gop_table_and_are_opened_by_their_tails(full_house: House) -> None:
    whole = Manifest.open(full_house.curate("whole").uri)
    table = DeltaTable(full_house.workspace.warehouse.uri("gop_tables"))
    table.delete(f"episode_id = {whole.row(0).episode_id}")
    made = full_house.curate("older")
    assert (made.totals.num_rows, made.num_without_gops) == (2, 1)
    older = Manifest.open(made.uri)
    assert older.gops(0) is None
    assert older.gops(1) is not None
    spec = WindowSpec(frames=(0,), state=(0,), action=(0,))
    for anchor in (0, len(EpisodeDataset(older, spec)) - 1):
        sample, expected = (EpisodeDataset(manifest, spec)[anchor] for manifest in (older, whole))
        assert (sample["frames"] == expected["frames"]).all()
        assert (sample["state"] == expected["state"]).all()


def test_frames_of_a_still_recording_equal_a_direct_decode_within_the_encoders_error(house: House) -> None:
    house.simulate(1, paint=True, size=(192, 256))
    house.run()
    dataset = dataset_of(house, "sim", (0,))
    (recording,) = (house.landing / "sim").rglob("*.mcap")
    pictures = raw_pictures(recording)
    for anchor in range(0, len(dataset), 10):
        item = dataset[anchor]
        for camera, name in enumerate(dataset.cameras):
            frame = item["frames"][camera, 0].numpy()
            source = np.asarray(Image.open(io.BytesIO(pictures[name][read_paint(frame)][1])).convert("RGB"))
            assert psnr(frame, source) > 33  # crf 18 on a noisy picture with hard-edged paint


@pytest.fixture(scope="module")
def g1_house(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]
) -> Iterator[House]:
    """A house that took in one real episode of the G1 set."""
    folder = tmp_path_factory.mktemp("g1")
    with open_house(Home.at(folder / "home").prepare(), new_database()) as house:
        take(house, _only(shared_data / G1, folder / "landing", G1_EPISODE), G1)
        yield house


def take(house: House, landing: Path, name: str) -> None:
    house.add(name, landing)
    house.edit_source(name, "quiet_period_s = 10.0", "quiet_period_s = 0.0")
    house.run()


def _only(source: Path, landing: Path, episode: str) -> Path:
    """A copy of the data set with only the files of `episode`."""
    for path in source.rglob("*"):
        if path.is_file() and ("episode_0" not in path.name or episode in path.name):
            target = landing / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return landing


def decoded(video: Path) -> list[NDArray[np.uint8]]:
    """Every frame of a video, without our code."""
    with av.open(str(video)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def shown(house: House, source: str, episode: str) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Every ninth step of the episode, and the frame of the first camera that training sees at it."""
    dataset = dataset_of(house, source, (0,))
    names = {row["episode_id"]: row["name"] for row in house.rows("episodes")}
    (wanted,) = [row for row in dataset.manifest.rows() if names[row.episode_id] == episode]
    for step in range(0, wanted.num_steps, 9):
        yield step, dataset[wanted.stop_anchor - wanted.num_steps + step]["frames"][0, 0].numpy()


def test_frames_of_a_video_recording_equal_a_direct_decode_at_the_right_steps(
    g1_house: House, shared_data: Path
) -> None:
    (video,) = (shared_data / G1).rglob(f"{G1_EPISODE}.mp4")
    frames = decoded(video)
    for step, frame in shown(g1_house, G1, G1_EPISODE):
        here = psnr(frame, frames[step])
        assert here > 36
        others = [frames[near] for near in (step - 5, step + 5) if 0 <= near < len(frames)]
        assert all(here > psnr(frame, other) for other in others)


def test_an_episode_in_the_middle_of_a_video_file_is_cut_out_of_it_and_a_robot_that_stands_still_is_warned_of(
    house: House, shared_data: Path
) -> None:
    take(house, shared_data / SO101, SO101)
    assert len(house.rows("episodes")) == 6 and not rejections(house.workspace.warehouse)
    assert all("state.moves" in checks for checks in house.verdicts("warn").values())
    (video,) = (shared_data / SO101).rglob("file-000.mp4")
    frames, first = decoded(video), 383 + 386 + 379 + 382
    for step, frame in shown(house, SO101, "episode_000004"):
        assert psnr(frame, frames[first + step]) > 36


def test_state_and_action_rows_of_a_window_are_those_of_the_data_set(
    g1_house: House, shared_data: Path
) -> None:
    dataset = dataset_of(g1_house, G1, (0,))
    table = pq.read_table(shared_data / G1 / "data" / "chunk-000" / f"{G1_EPISODE}.parquet")
    state_TD, action_TA = (
        np.array(table[key].to_pylist(), dtype=np.float32) for key in ("observation.state", "action")
    )
    assert len(dataset) == len(state_TD)
    for anchor in (0, 100, len(dataset) - 1):
        item = dataset[anchor]
        assert (item["state"][0].numpy() == state_TD[anchor]).all()
        rows = np.clip(anchor + np.arange(8), 0, len(action_TA) - 1)
        assert (item["action"].numpy() == action_TA[rows]).all()


def test_materializing_a_shard_twice_does_nothing_the_second_time(full_house: House) -> None:
    stamps = full_house.workspace.warehouse.pin("version_stamps").version
    before = (full_house.objects(), full_house.stamps())
    full_house.run()
    full_house.run("ingest_batch")
    assert (full_house.objects(), full_house.stamps()) == before
    assert full_house.workspace.warehouse.pin("version_stamps").version == stamps


def test_a_new_upload_joins_the_open_shard_and_leaves_the_others_alone(full_house: House) -> None:
    before = full_house.objects()
    full_house.simulate(1, start=3)
    full_house.run()
    after = full_house.objects()
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


def test_a_bumped_label_version_redoes_labels_and_encodes_nothing(
    full_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, stamps = full_house.objects(), full_house.stamps()
    _bump(monkeypatch, "labels")
    full_house.run("relabel")
    assert full_house.objects() == objects
    assert _changed(full_house, stamps) == {"labels"}


def test_a_bumped_align_version_redoes_the_files_and_all_that_is_made_of_them(
    full_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps, objects = full_house.stamps(), full_house.objects()
    _bump(monkeypatch, "episodes")
    full_house.run("ingest_online")
    assert full_house.stamps() == stamps  # online never redoes what is only stale
    full_house.run("reprocess")
    assert _changed(full_house, stamps) == {"episodes", "gate_after", "labels", "media"}
    # objects are immutable: what was made before stays
    assert objects.items() <= full_house.objects().items()


def _changed(house: House, before: dict[tuple[int, str], dict[str, Any]]) -> set[str]:
    """Steps that some episode went through once more."""
    return {
        step for (number, step), row in house.stamps().items() if row["seq"] != before[number, step]["seq"]
    }


def test_a_changed_quality_in_the_sources_toml_makes_its_files_anew(full_house: House) -> None:
    before = {row["episode_id"]: row for row in full_house.rows("episodes")}
    full_house.edit_source("sim", 'quality = "default"', 'quality = "train"')
    full_house.run("reprocess")
    after = {row["episode_id"]: row for row in full_house.rows("episodes")}
    for number, row in after.items():
        assert row["size_bytes"] < before[number]["size_bytes"]
        assert row["seq"] > before[number]["seq"]
    made = full_house.curate(where="source = 'sim'")
    assert made.totals.num_rows == 2


def _bump(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Raise the version of one part of a step, as a change of its code would."""
    versions: dict[str, Any] = dict(stamps.STEPS[step].versions)
    versions[next(iter(versions))] += 1
    monkeypatch.setitem(stamps.STEPS, step, replace(stamps.STEPS[step], versions=versions))
