from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from episode_samples import LAYOUT, header
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.episode.address import episode_path
from dyna_train.episode.profile import (
    RATES_HZ,
    EpisodeHeader,
    camera_metadata,
    episode_records,
    grid_times_ns,
    read_header,
    step_time_ns,
    vector_metadata,
)
from dyna_train.episode.tracks import CameraTrack, DepthTrack, VectorTrack
from dyna_train.errors import BadInput, CorruptEpisode

RATES = st.one_of(st.sampled_from([5.0, 15.0, 29.97, 30.0, 50.0, 1000.0]), st.floats(0.1, 1000))


@given(start_ns=st.integers(0, 2**62), rate_hz=RATES, step=st.integers(0, 10**9))
def test_a_step_time_is_the_exact_quotient_within_half_a_nanosecond(start_ns, rate_hz, step):
    exact = start_ns + Fraction(step * 10**9) / Fraction(rate_hz)
    assert abs(step_time_ns(start_ns, rate_hz, step) - exact) <= Fraction(1, 2)


@given(start_ns=st.integers(0, 2**62), rate_hz=RATES, num_steps=st.integers(1, 300))
def test_grid_times_of_an_episode_equal_the_times_of_its_steps(start_ns, rate_hz, num_steps):
    times_T = grid_times_ns(start_ns, rate_hz, num_steps)
    assert times_T.dtype == np.int64
    assert times_T.tolist() == [step_time_ns(start_ns, rate_hz, step) for step in range(num_steps)]


def test_thirty_steps_of_a_thirty_hertz_grid_are_one_second_without_drift():
    assert step_time_ns(7, 30.0, 30 * 86_400) == 7 + 86_400 * 10**9


def test_an_episode_path_names_shard_id_and_content():
    assert episode_path("s000012", 43, "ab" * 32) == "episodes/s000012/43-abababababababab.mcap"


def test_an_episode_path_refuses_what_is_no_sha256():
    with pytest.raises(BadInput, match=r"episode 43: expected 16 or 64 hex digits, found 'abc'"):
        episode_path("s000012", 43, "abc")


def _channels(header: EpisodeHeader) -> dict[str, dict[str, str]]:
    cameras = {camera.topic: camera_metadata(camera, 30.0, 6, "x") for camera in header.cameras}
    return cameras | {vector.topic: vector_metadata(vector, 30.0) for vector in header.vectors}


@pytest.mark.parametrize("success", [None, True, False])
def test_a_header_survives_its_metadata_records(success):
    described = replace(header(5, rate_hz=29.97), success=success)
    assert read_header("x.mcap", _channels(described), episode_records(described, LAYOUT)) == described


def test_a_file_of_another_profile_is_refused_with_what_was_found():
    records = episode_records(header(5), LAYOUT) | {"dyna.profile": {"name": "dyna.episode", "version": "9"}}
    with pytest.raises(CorruptEpisode, match=r"x\.mcap: expected profile dyna\.episode/1, found .*'9'"):
        read_header("x.mcap", {}, records)


def test_metadata_that_lacks_a_key_is_corrupt_and_names_the_key():
    records = episode_records(header(5), LAYOUT)
    del records["dyna.episode"]["rate_hz"]
    with pytest.raises(CorruptEpisode, match=r"x\.mcap: metadata does not describe .*rate_hz"):
        read_header("x.mcap", _channels(header(5)), records)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cameras": (), "vectors": ()}, "neither cameras nor vectors"),
        ({"num_steps": 0}, "num_steps = 0, expected at least 1"),
        ({"rate_hz": 0.0}, r"rate_hz = 0\.0, expected a positive number"),
        ({"rate_hz": 5e-324}, r"rate_hz = 5e-324, expected a positive number from 0\.001 to 1e\+06"),
        ({"rate_hz": 1e300}, r"rate_hz = 1e\+300, expected a positive number from"),
        ({"rate_hz": float("nan")}, "rate_hz = nan, expected a positive number from"),
        ({"rate_hz": "30"}, "rate_hz = '30', expected a number"),
        ({"start_ns": 2**63 - 10}, f"start_ns = {2**63 - 10}: the last of 5 steps is at .* ns, beyond int64"),
        ({"start_ns": 1.5}, r"start_ns = 1\.5, expected a whole number"),
        ({"num_steps": 14.0}, r"num_steps = 14\.0, expected a whole number"),
        ({"num_steps": 1 << 33}, "num_steps = 8589934592, expected at least 1 and at most 4,294,967,296"),
        ({"success": "yes"}, "success = 'yes', expected True, False or None"),
        ({"robot": None}, "robot = None, expected text"),
        ({"task": "\ud800"}, r"task = '\\ud800', expected text that UTF-8 can say"),
        ({"versions": {"a": 1}}, r"versions = \{'a': 1\}, expected a mapping of texts"),
        ({"quality": None}, "quality = None, expected a mapping of texts"),
        ({"cameras": (CameraTrack(5, 8, 8),)}, "camera 5 of 8 x 8: expected a name and whole numbers"),
        ({"depths": (DepthTrack("d", 8, 8, float("inf")),)}, "units of inf m needs .* a finite unit"),
        ({"depths": (DepthTrack("d", 8, 8, "m"),)}, "depth camera 'd' in units of 'm' m: expected a number"),
        (
            {"vectors": (VectorTrack("arm", "state", ("\udfff",), ("m",)),)},
            "vector 'arm' with names .* texts",
        ),
        ({"start_ns": -1}, "start_ns = -1, expected 0 or more"),
        ({"cameras": (CameraTrack("a", 8, 8), CameraTrack("a", 8, 8))}, "/camera/a/video stands twice"),
        ({"cameras": (CameraTrack("a/b", 8, 8),)}, "camera 'a/b' of 8x8 needs a plain name"),
        ({"cameras": (CameraTrack("a", 0, 8),)}, "camera 'a' of 0x8 needs a plain name and a size"),
        ({"vectors": (VectorTrack("arm", "state", (), ()),)}, "/state/arm of 0 dimensions needs"),
        ({"vectors": (VectorTrack("arm", "state", ("x",), ()),)}, "/state/arm has 1 names but 0 units"),
    ],
)
def test_a_header_that_no_file_could_keep_is_refused_with_its_fault(change, message):
    with pytest.raises(BadInput, match=rf"episode 4300000017 \('session 3/take 12'\): .*{message}"):
        replace(header(5), **change)


def test_an_id_that_is_no_number_is_refused_before_a_file_is_written():
    with pytest.raises(BadInput, match=r"episode 'abc' \(.*\): episode_id = 'abc', expected a whole number"):
        replace(header(5), episode_id="abc")


@given(rate_hz=st.sampled_from(RATES_HZ), start_ns=st.integers(0, 2**62), numpy=st.booleans())
def test_the_slowest_and_the_fastest_episode_have_times_that_differ(rate_hz, start_ns, numpy):
    start = np.int64(start_ns) if numpy else start_ns
    described = replace(header(5), rate_hz=rate_hz, start_ns=start, success=np.True_ if numpy else True)
    assert (np.diff(grid_times_ns(described.start_ns, described.rate_hz, 5)) > 0).all()


def test_asking_a_header_for_an_unknown_track_names_those_it_has():
    with pytest.raises(BadInput, match=r"no camera 'front'; its cameras: top, left\.wrist, right_wrist"):
        header(5).tracks.camera("front", where="e.mcap")
    with pytest.raises(
        BadInput, match=r"no vector topic 'arm'; its vector topics: /state/arm, /state/gripper"
    ):
        header(5).tracks.vector("arm", where="e.mcap")
