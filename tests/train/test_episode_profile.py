from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from episode_samples import LAYOUT, header
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.episode.profile import (
    CameraTrack,
    EpisodeHeader,
    VectorTrack,
    camera_metadata,
    episode_path,
    episode_records,
    grid_times_ns,
    read_header,
    step_time_ns,
    vector_metadata,
)
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


def test_asking_a_header_for_an_unknown_track_names_those_it_has():
    with pytest.raises(BadInput, match=r"no camera 'front'; its cameras: top, left\.wrist, right_wrist"):
        header(5).tracks.camera("front", where="e.mcap")
    with pytest.raises(
        BadInput, match=r"no vector topic 'arm'; its vector topics: /state/arm, /state/gripper"
    ):
        header(5).tracks.vector("arm", where="e.mcap")
