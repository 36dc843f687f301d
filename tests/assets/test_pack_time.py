"""What the step `episodes` makes of clocks, gaps, extra topics and derived signals: read back from the file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import foxglove.messages as foxglove
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap_samples import Sample, foxglove_sample, foxglove_time, json_sample, json_time, write_samples
from PIL import Image
from recordings import T0_NS, still
from row_samples import row_of

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.frames import runs_of
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.profile import MISSING_NS
from dyna_train.episode.reader import Episode

MS = 1_000_000


def picture(time_ns: int, number: int) -> Sample:
    stamp = foxglove.CompressedImage(
        timestamp=foxglove_time(time_ns), frame_id="top", data=still(number), format="jpeg"
    )
    return foxglove_sample("/top", stamp, publish_ns=time_ns, log_ns=time_ns)


def arm(time_ns: int, value: float) -> Sample:
    message = {"timestamp": json_time(time_ns), "angle": value}
    return json_sample("/arm", message, publish_ns=time_ns, log_ns=time_ns)


def recording(
    folder: Path, frames_ms: Sequence[float], arm_ms: Sequence[float], more: Sequence[Sample] = ()
) -> Path:
    samples = [picture(T0_NS + round(ms * MS), number) for number, ms in enumerate(frames_ms)]
    samples += [arm(T0_NS + round(ms * MS), ms / 1000) for ms in arm_ms]
    return write_samples(folder / "a.mcap", sorted([*samples, *more], key=lambda sample: sample.publish_ns))


def packed(root: Path, **source: Any) -> tuple[Row, StepResult, Episode]:
    profile = {
        "name": "lab",
        "landing": str(root),
        "reader": "mcap",
        "grid": {"rate_hz": 20.0, "max_gap_s": 0.3},
        "cameras": [{"name": "top", "topic": "/top"}],
        "states": [{"name": "arm", "topic": "/arm", "units": "rad"}],
        **source,
    }
    about = {"name": "a", "recording_name": "a", "files": ("a.mcap",), "upload_uri": str(root)}
    row = row_of(SourceProfile.model_validate(profile), root.parent / "lake", **about)
    probed = attempt("recordings", row)
    assert probed.status == "ok", probed.reason
    row = replace(row, upstream={"recordings": probed.rows["recordings"][0]})
    result = attempt("episodes", row)
    assert result.status == "ok", result.reason
    return row, result, Episode.open(row.episode_uri(result.rows["episodes"][0]["content_hash"]))


def test_a_camera_that_is_silent_too_long_has_steps_without_a_frame_and_they_are_in_no_valid_stretch(
    tmp_path: Path,
) -> None:
    frames_ms = [ms for ms in range(0, 2000, 50) if not 500 < ms < 1200]
    recording(tmp_path / "set", frames_ms, range(0, 2000, 10))
    _, result, episode = packed(tmp_path / "set")
    with episode:
        has_frame = episode.has_frame("top")
        captured = episode.capture_ns("/camera/top/video")
    (row,) = result.rows["episodes"]
    # the frame at 500 ms holds until 800 ms; from then to 1,150 ms nothing is shown
    assert np.flatnonzero(~has_frame).tolist() == list(range(17, 24))
    assert (captured[~has_frame] == MISSING_NS).all()
    assert (row["valid_starts"], row["valid_ends"]) == ([0, 24], [17, len(has_frame)])


def test_moments_are_over_valid_steps_whatever_the_others_hold(tmp_path: Path) -> None:
    angles_ms = [ms for ms in range(0, 2000, 10) if not 500 < ms < 1200]
    recording(tmp_path / "set", range(0, 2000, 50), angles_ms)
    _, result, episode = packed(tmp_path / "set")
    with episode:
        angles_T = episode.state_TD[:, 0].astype(np.float64)
    (row,) = result.rows["episodes"]
    spans = list(zip(row["valid_starts"], row["valid_ends"], strict=True))
    valid_T = np.concatenate([angles_T[start:end] for start, end in spans])
    assert len(spans) == 2 and len(valid_T) < len(angles_T)
    assert row["state_mean"] == [pytest.approx(valid_T.mean())] != [pytest.approx(angles_T.mean())]
    assert row["state_m2"] == [pytest.approx(valid_T.var() * len(valid_T))]
    assert (row["state_min"], row["state_max"]) == ([valid_T.min()], [valid_T.max()])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_shows_in_the_moments_if_its_step_is_valid(
    tmp_path: Path, value: float
) -> None:
    angles_ms = [ms for ms in range(0, 1000, 10) if ms != 500]
    recording(tmp_path / "set", range(0, 1000, 50), angles_ms, [arm(T0_NS + 500 * MS, value)])
    _, result, episode = packed(tmp_path / "set")
    episode.close()
    (row,) = result.rows["episodes"]
    assert row["valid_starts"] == [0]
    assert not math.isfinite(row["state_mean"][0]) and math.isnan(row["state_m2"][0])


def test_an_episode_without_a_valid_step_has_no_moments(tmp_path: Path) -> None:
    recording(tmp_path / "set", range(400, 960, 50), [0, 1000])  # the state is too old at every frame
    _, result, episode = packed(tmp_path / "set")
    episode.close()
    (row,) = result.rows["episodes"]
    assert row["num_steps"] > 0 and row["state_names"] == ["arm.angle"]
    assert [row[f"state_{moment}"] for moment in ("mean", "m2", "min", "max")] == [[]] * 4
    assert row["valid_starts"] == []


def test_every_frame_of_a_reference_camera_is_one_step_and_the_state_is_that_of_its_own_time(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    frames_ms = (np.arange(60) * 50 + rng.uniform(0, 20, 60)).tolist()
    recording(tmp_path / "set", frames_ms, np.arange(0, 3100, 5.0).tolist())
    _, result, episode = packed(
        tmp_path / "set",
        grid={"rate_hz": 20.0, "reference": "top"},
        states=[{"name": "arm", "topic": "/arm", "units": "m", "align": "interpolate"}],
    )
    with episode:
        captured = episode.capture_ns("/camera/top/video")
        angles = episode.state_TD[:, 0]
    assert captured.tolist() == [T0_NS + round(ms * MS) for ms in frames_ms]
    np.testing.assert_allclose(angles, np.array(frames_ms) / 1000, atol=1e-5)
    (account,) = [row for row in result.rows["accounts"] if row["topic"] == "/top"]
    assert (account["num_in"], account["num_used"]) == (60, 60)


def test_a_latency_is_taken_off_before_frames_and_states_are_paired(tmp_path: Path) -> None:
    recording(tmp_path / "set", range(0, 2000, 50), range(0, 2000, 5))
    _, _, episode = packed(tmp_path / "set", cameras=[{"name": "top", "topic": "/top", "latency_ms": 100.0}])
    with episode:
        captured = episode.capture_ns("/camera/top/video")
        angles = episode.state_TD[:, 0]
    shown_s = (captured - T0_NS) / 1e9  # when the world looked so
    assert (shown_s <= angles + 1e-6).all()
    assert (angles - shown_s).max() <= 0.05


def test_a_topic_without_a_role_comes_out_byte_for_byte_and_everything_is_accounted_for(
    tmp_path: Path,
) -> None:
    notes = [
        json_sample("/note", {"text": f"n{k}"}, publish_ns=T0_NS + k * 90 * MS, log_ns=T0_NS)
        for k in range(9)
    ]
    recording(tmp_path / "set", range(0, 1000, 50), range(0, 1000, 10), notes)
    _, result, episode = packed(tmp_path / "set", extra=["/note"])
    with episode:
        kept = [(m.publish_ns, bytes(m.data)) for m in episode.extra_messages("/note")]
    assert [data for _, data in kept] == [note.data for note in notes]
    for row in result.rows["accounts"]:
        assert row["num_in"] == row["num_used"] + row["num_outside"] + row["num_surplus"], row
    assert {row["topic"]: row["use"] for row in result.rows["accounts"]} == {
        "/top": "role", "/arm": "role", "/note": "extra",
    }  # fmt: skip


def test_a_derived_signal_is_a_vector_of_the_file_with_its_unit(tmp_path: Path) -> None:
    recording(tmp_path / "set", range(0, 2000, 50), range(0, 2000, 10))
    _, result, episode = packed(
        tmp_path / "set", derived=[{"name": "arm_speed", "function": "velocity", "of": ["state/arm"]}]
    )
    with episode:
        track = episode.header.vectors[1]
        speed = episode.vector("/state/arm_speed")[:, 0]
    assert (track.name, track.units) == ("arm_speed", ("rad/s",))
    np.testing.assert_allclose(speed[2:], 1.0, atol=1e-3)  # the angle is the time in seconds
    assert result.rows["episodes"][0]["state_names"][-1].endswith("angle")


def test_the_header_says_how_each_topic_came_onto_the_grid(tmp_path: Path) -> None:
    recording(tmp_path / "set", range(0, 1000, 50), range(0, 1000, 10))
    _, _, episode = packed(
        tmp_path / "set", states=[{"name": "arm", "topic": "/arm", "align": "interpolate", "latency_ms": 5}]
    )
    with episode:
        versions = episode.header.versions
    assert versions["grid"] == "uniform"
    assert versions["align.camera/top"] == "causal, latency 0 ms"
    assert versions["align.state/arm"] == "interpolate, latency 5 ms"


@given(frames=st.lists(st.integers(-1, 5), min_size=1, max_size=30))
def test_runs_cover_every_step_once_in_order(frames: list[int]) -> None:
    runs = runs_of(np.array(frames))
    assert [run.frame for run in runs for _ in run.steps] == frames
    assert [step for run in runs for step in run.steps] == list(range(len(frames)))
    assert all(a.frame != b.frame for a, b in itertools.pairwise(runs))


def test_jpeg_messages_of_another_size_are_refused_with_topic_and_time(tmp_path: Path) -> None:
    root = tmp_path / "set"
    frames_ms = [ms for ms in range(0, 1000, 50) if ms != 450]
    recording(root, frames_ms, range(0, 1000, 10), [wide_picture(T0_NS + 449 * MS)])
    with pytest.raises(AssertionError, match=r"/top at \d+ ns: a picture of 32x16, the first one has 64x48"):
        packed(root)


def wide_picture(time_ns: int) -> Sample:
    buffer = BytesIO()
    Image.new("RGB", (32, 16)).save(buffer, "JPEG")
    message = foxglove.CompressedImage(
        timestamp=foxglove_time(time_ns), frame_id="top", data=buffer.getvalue(), format="jpeg"
    )
    return foxglove_sample("/top", message, publish_ns=time_ns, log_ns=time_ns)
