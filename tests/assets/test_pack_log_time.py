"""With a reference camera, what is not on the grid lies on the same clock in the file as the steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mcap_samples import json_sample
from recordings import T0_NS
from test_pack_time import MS, packed, recording


def test_a_mark_lies_beside_the_frame_it_was_captured_with_where_the_reference_camera_loses_frames(
    tmp_path: Path,
) -> None:
    frames_ms = [50 * k for k in range(60) if k % 7 != 3]
    marks_ns = [T0_NS + ms * MS + 1 for ms in frames_ms]
    marks = [json_sample("/mark", {"at": ns}, publish_ns=ns, log_ns=ns) for ns in marks_ns]
    recording(tmp_path / "set", frames_ms, np.arange(0, 3100, 5.0).tolist(), marks)
    _, _, episode = packed(tmp_path / "set", grid={"rate_hz": 20.0, "reference": "top"}, extra=["/mark"])
    with episode:
        kept = list(episode.extra_messages("/mark"))
        start_ns = episode.header.start_ns
        assert episode.num_steps == len(frames_ms)
    assert [mark.publish_ns for mark in kept] == marks_ns
    after_ns = [mark.log_ns - start_ns - step * 50 * MS for step, mark in enumerate(kept)]
    assert set(after_ns) <= {0, 1}, "a nanosecond after a frame is at most one after its step"


def test_on_a_uniform_grid_a_mark_keeps_its_time(tmp_path: Path) -> None:
    marks_ns = [T0_NS + ns for ns in (0, 333_333_333, 1_999_999_999)]
    marks = [json_sample("/mark", {"at": ns}, publish_ns=ns, log_ns=ns) for ns in marks_ns]
    recording(tmp_path / "set", [ms for ms in range(0, 1000, 50) if ms != 450], range(0, 1000, 10), marks)
    _, _, episode = packed(tmp_path / "set", extra=["/mark"])
    with episode:
        kept = list(episode.extra_messages("/mark"))
    assert [mark.log_ns for mark in kept] == [mark.publish_ns for mark in kept] == marks_ns
