from __future__ import annotations

from pathlib import Path

import av
import pyarrow.parquet as pq
import pytest
from recordings import number_in, write_lerobot_v30, write_table

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording, RecordingRef
from dyna_assets.landing.sources import detect, reader_named

CAMERA = "observation.images.top"
VIDEO = "videos/observation.images.top/chunk-000/file-000.mp4"
DATA = "data/chunk-000/file-000.parquet"
LIST = "meta/episodes/chunk-000/file-000.parquet"
READER = reader_named("lerobot_v30")


def opened(root: Path, index: int) -> Recording:
    folder = Folder.of(root)
    return READER.open(folder, READER.recordings(folder)[index])


def numbers_of(recording: Recording) -> list[int]:
    return [number_in(m.payload) for m in recording.read([CAMERA]) if isinstance(m.payload, av.VideoFrame)]


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("gop", [1, 7, 100])
def test_each_episode_gives_exactly_its_frames_out_of_the_shared_video(
    tmp_path: Path, gop: int, b_frames: int
) -> None:
    lengths = [12, 1, 9, 15]
    root = write_lerobot_v30(tmp_path, lengths, gop=gop, b_frames=b_frames)
    first = 0
    for index, length in enumerate(lengths):
        with opened(root, index) as recording:
            assert numbers_of(recording) == list(range(first, first + length))
            assert recording.times(CAMERA).tolist() == recording.times("action").tolist()
            assert recording.times(CAMERA)[0] == 0
            values = [message.payload for message in recording.read(["action"])]
            assert [float(value[0]) for value in values] == [step + 0.5 for step in range(length)]  # type: ignore[index]
        first += length


@pytest.mark.parametrize("row_group", [1, 7, 1000])
def test_rows_are_found_whatever_the_row_groups(tmp_path: Path, row_group: int) -> None:
    root = write_lerobot_v30(tmp_path, [5, 8, 3], row_group=row_group)
    with opened(root, 1) as recording:
        assert recording.topics["action"].num_messages == 8
        assert len(list(recording.read(["action", "observation.state"]))) == 16


def test_a_float_start_just_beside_its_frame_still_means_that_frame(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [7, 7])
    rows = pq.read_table(root / LIST).to_pylist()
    rows[1][f"videos/{CAMERA}/from_timestamp"] += 1e-6
    rows[1][f"videos/{CAMERA}/to_timestamp"] -= 1e-6
    write_table(root / LIST, type(pq.read_table(root / LIST)).from_pylist(rows))
    with opened(root, 1) as recording:
        assert numbers_of(recording) == list(range(7, 14))
        assert recording.times(CAMERA)[:2].tolist() == [0, 33_333_333]


def test_meta_comes_from_the_episode_list_without_its_statistics(tmp_path: Path) -> None:
    with opened(write_lerobot_v30(tmp_path, [4]), 0) as recording:
        assert recording.meta.task == "stack the cups"
        assert set(recording.meta.extra) == {"episode_index", "num_steps_listed", "tasks"}


def test_recordings_name_the_shared_files_they_are_read_from(tmp_path: Path) -> None:
    folder = Folder.of(write_lerobot_v30(tmp_path, [2, 2]))
    ref = READER.recordings(folder)[1]
    assert (ref.name, ref.files) == ("episode_000001", (DATA, VIDEO))
    assert READER.notes(folder) == []


def test_an_episode_without_rows_is_listed_and_says_what_is_missing(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3, 4])
    table = pq.read_table(root / DATA)
    write_table(root / DATA, table.slice(0, 3))
    with opened(root, 1) as recording:
        assert list(recording.topics) == [CAMERA]
        assert "holds no row of episode 1; its 3 rows belong to 1 other" in recording.meta.missing["action"]


def test_a_missing_video_leaves_all_episodes_listed(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3, 4])
    (root / VIDEO).unlink()
    folder = Folder.of(root)
    assert len(READER.recordings(folder)) == 2
    assert READER.notes(folder) == [f"2 of 2 listed episodes lack a file, first episode_000000: no {VIDEO}"]
    with opened(root, 1) as recording:
        assert "no file" in recording.meta.missing[CAMERA]


def test_a_video_that_ends_before_the_episode_gives_fewer_times_not_other_frames(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3, 4])
    write_lerobot_v30(tmp_path / "short", [3, 2])
    (root / VIDEO).write_bytes((tmp_path / "short" / VIDEO).read_bytes())
    with opened(root, 1) as recording:
        assert len(recording.times(CAMERA)) == 2 < recording.topics[CAMERA].num_messages == 4
        assert numbers_of(recording) == [3, 4]


def test_a_cut_episode_list_is_refused(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3])
    (root / LIST).write_bytes((root / LIST).read_bytes()[:100])
    with pytest.raises(
        RecordingError, match=r"meta/episodes/chunk-000/file-000\.parquet: not readable as parquet"
    ):
        READER.recordings(Folder.of(root))


def test_an_absent_episode_list_is_refused(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3])
    (root / LIST).unlink()
    with pytest.raises(
        RecordingError, match=r"meta/episodes: no parquet file; LeRobot v3\.0 lists its episodes there"
    ):
        READER.recordings(Folder.of(root))


def test_an_episode_list_without_places_is_refused_by_column(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3])
    write_table(root / LIST, pq.read_table(root / LIST).drop_columns(["data/file_index"]))
    with pytest.raises(RecordingError, match="the episode list lacks 'data/file_index' for episode 0"):
        READER.recordings(Folder.of(root))


@pytest.mark.parametrize("place", [float("nan"), -1.0, 1e12])
def test_a_place_outside_of_any_video_is_refused(tmp_path: Path, place: float) -> None:
    root = write_lerobot_v30(tmp_path, [3])
    rows = pq.read_table(root / LIST).to_pylist()
    rows[0][f"videos/{CAMERA}/from_timestamp"] = place
    write_table(root / LIST, type(pq.read_table(root / LIST)).from_pylist(rows))
    with pytest.raises(
        RecordingError, match=r"places 'observation\.images\.top' of episode 0 at .* to 0\.1 s"
    ):
        READER.recordings(Folder.of(root))


def test_an_episode_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    folder = Folder.of(write_lerobot_v30(tmp_path, [2]))
    with pytest.raises(RecordingError, match="meta/episodes: lists no episode 7"):
        READER.open(folder, RecordingRef("episode_000007", ()))


def test_rows_scattered_over_the_file_are_refused(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path, [3, 3])
    write_table(root / DATA, pq.read_table(root / DATA).take([0, 3, 1, 4, 2, 5]))
    with opened(root, 0) as recording:
        assert "rows of episode 0 are not one stretch" in recording.meta.missing["action"]


def test_real_episodes_equal_a_plain_sequential_decode(shared_data: Path) -> None:
    root = shared_data / "so101_sim_lerobot_v30"
    folder = Folder.of(root)
    reader = detect(folder)
    refs = reader.recordings(folder)
    camera = "observation.images.wrist"
    lengths = [383, 386, 379, 382, 90, 162]
    assert (reader.name, len(refs)) == ("lerobot_v30", 6)
    ends = {sum(lengths[:index]) for index in range(7)}
    wanted = ends | {end - 1 for end in ends}
    plain = {}
    with av.open(str(root / "videos" / camera / "chunk-000/file-000.mp4")) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                plain[number] = frame.to_ndarray()
    first = 0
    for ref, length in zip(refs, lengths, strict=True):
        with reader.open(folder, ref) as recording:
            assert len(recording.times(camera)) == length == recording.topics[camera].num_messages
            assert (recording.times(camera) == recording.times("observation.state")).all()
            if length < 200:  # the short ones are decoded whole, of the others the first frame
                frames = [message.payload for message in recording.read([camera])]
                assert (frames[-1].to_ndarray() == plain[first + length - 1]).all()  # type: ignore[union-attr]
            else:
                frames = [next(recording.read([camera])).payload]
            assert (frames[0].to_ndarray() == plain[first]).all()  # type: ignore[union-attr]
        first += length
