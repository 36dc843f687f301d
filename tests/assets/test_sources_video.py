from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import number_in, write_video

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.video import Video, pts_to_ns, ticks_to_ns

TRICKY = [
    ("discard_first_keyframe.mp4", 25),
    ("test_non_zero_start.mp4", 12),
    ("nasa_13013_vfr.mp4", 50),
    ("h264_10bits.mp4", 30),
    ("h265_video.mp4", 10),
    ("av1_video.mkv", 125),
    ("testsrc2_vp8.webm", 30),
    ("testsrc2_mpeg4.avi", 30),
    ("testsrc2_mpeg4.mp4", 1),
]


@pytest.mark.parametrize(("name", "num_frames"), TRICKY)
def test_times_and_frames_agree_on_tricky_files(shared_data: Path, name: str, num_frames: int) -> None:
    video = Video(Folder.of(shared_data / "tricky_video"), name)
    pts = video.pts()
    assert len(pts) == num_frames
    with av.open(str(shared_data / "tricky_video" / name)) as container:
        assert pts.tolist() == [frame.pts for frame in container.decode(video=0)]
    assert [frame.pts for frame in video.frames(pts)] == pts.tolist()


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("gop", [1, 5, 100])
def test_any_stretch_of_a_video_gives_exactly_its_frames(tmp_path: Path, gop: int, b_frames: int) -> None:
    write_video(tmp_path / "v.mp4", range(23), gop=gop, b_frames=b_frames)
    folder = Folder.of(tmp_path)
    for first, last in [(0, 23), (0, 1), (4, 11), (5, 10), (13, 14), (22, 23)]:
        stretch = Video(folder, "v.mp4", first * 512, last * 512)
        pts = stretch.pts()
        assert pts.tolist() == [step * 512 for step in range(first, last)]
        assert [number_in(frame) for frame in stretch.frames(pts)] == list(range(first, last))


def test_a_stretch_behind_the_end_is_empty(tmp_path: Path) -> None:
    write_video(tmp_path / "v.mp4", range(5))
    stretch = Video(Folder.of(tmp_path), "v.mp4", 100 * 512, 110 * 512)
    assert stretch.pts().tolist() == []
    assert list(stretch.frames(np.empty(0, np.int64))) == []


def test_a_variable_rate_keeps_its_own_times(tmp_path: Path) -> None:
    pts = [0, 512, 1300, 1536, 2600]
    write_video(tmp_path / "v.mp4", range(5), pts=pts)
    video = Video(Folder.of(tmp_path), "v.mp4")
    assert video.pts().tolist() == pts
    times = pts_to_ns(video.pts(), video.info().time_base, Fraction(30))
    assert times.tolist() == [round(Fraction(tick, 15360) * 10**9) for tick in pts]


def test_a_cut_file_with_its_index_in_front_names_the_byte_it_ends_at(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    write_video(path, range(40), faststart=True)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    message = (
        rf"v\.mp4: the file ends at byte {len(content) * 2 // 3:,}, its 40 frames need {len(content):,} bytes"
    )
    with pytest.raises(RecordingError, match=message):
        Video(Folder.of(tmp_path), "v.mp4").pts()


def test_a_cut_file_without_its_index_is_refused_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    write_video(path, range(40))
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(
        RecordingError, match=r"v\.mp4: cannot be read as video \(Invalid data.*\); 1,500 bytes"
    ) as hit:
        Video(Folder.of(tmp_path), "v.mp4").info()
    assert hit.value.check == "video.decodable"


def test_damaged_frames_are_refused_where_they_are_met(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    write_video(path, range(40), gop=5)
    video = Video(Folder.of(tmp_path), "v.mp4")
    pts = video.pts()
    content = bytearray(path.read_bytes())
    for at in range(1300, 1700):
        content[at] ^= 0x5A
    path.write_bytes(bytes(content))
    seen = []
    with pytest.raises(RecordingError, match=r"v\.mp4: .*(does not decode|the decoder gave).*damaged"):
        seen.extend(number_in(frame) for frame in video.frames(pts))
    assert seen == list(range(len(seen)))


def test_fewer_frames_than_times_is_an_error_naming_the_frame(tmp_path: Path) -> None:
    write_video(tmp_path / "v.mp4", range(5))
    video = Video(Folder.of(tmp_path), "v.mp4")
    expected = np.arange(6) * 512
    with pytest.raises(
        RecordingError, match="frame 5: expected a whole frame at tick 2560, the decoder gave none"
    ):
        list(video.frames(expected))
    with pytest.raises(
        RecordingError, match="frame 4: expected no further frame, the decoder gave one at tick 2048"
    ):
        list(video.frames(expected[:4]))


def test_a_file_without_a_picture_is_refused(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(RecordingError, match=r"sound\.wav: no video stream inside"):
        Video(Folder.of(tmp_path), "sound.wav").info()


@given(
    step=st.integers(0, 10**6),
    fps=st.sampled_from(
        [Fraction(30), Fraction(50), Fraction(2997, 100), Fraction(30000, 1001), Fraction(15)]
    ),
)
def test_equal_instants_on_the_grid_and_on_the_video_clock_are_equal_integers(
    step: int, fps: Fraction
) -> None:
    ticks = np.array([step * 512], np.int64)
    on_grid = ticks_to_ns(np.array([step], np.int64), 1 / fps)
    assert pts_to_ns(ticks, 1 / (512 * fps), fps)[0] == on_grid[0] == (2 * step * 10**9 / fps + 1) // 2


@given(ticks=st.lists(st.integers(-(2**40), 2**40), max_size=20), rate=st.integers(1000, 90_000))
def test_ticks_become_the_nearest_nanosecond(ticks: list[int], rate: int) -> None:
    for tick, time_ns in zip(
        ticks, ticks_to_ns(np.array(ticks, np.int64), Fraction(1, rate)).tolist(), strict=True
    ):
        assert abs(Fraction(tick * 10**9, rate) - time_ns) <= Fraction(1, 2)


def test_a_millisecond_clock_still_means_the_grid_instants() -> None:
    ticks = np.array([round(step * 1000 / 15) for step in range(50)], np.int64)
    assert pts_to_ns(ticks, Fraction(1, 1000), Fraction(15)).tolist() == [
        (2 * step * 10**9 + 15) // 30 for step in range(50)
    ]
