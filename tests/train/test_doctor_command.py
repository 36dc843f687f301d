"""What `dyna-train doctor` says: nothing of a healthy file, one line for each fault, exit codes, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import fsspec
from broken_promises import ARM, message
from doctor_samples import EXTRA, write_rich
from episode_samples import LAYOUT, header, vectors_of
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dyna_train.cli import app
from dyna_train.doctor.report import examine
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

SIZES = st.tuples(st.integers(16, 40), st.integers(16, 40))


@given(data=st.data())
@settings(max_examples=25)
def test_a_healthy_file_of_any_layout_has_no_fault(tmp_path_factory, data):
    gop, gops, chunks = (
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 3)),
    )
    sizes = data.draw(st.lists(SIZES, max_size=2))
    cameras = tuple(CameraTrack(f"c{i}", *size) for i, size in enumerate(sizes))
    dims = data.draw(st.lists(st.integers(1, 40), min_size=0 if cameras else 1, max_size=3))
    vectors = tuple(VectorTrack(f"v{i}", "state", ("q",) * dim, ("rad",) * dim) for i, dim in enumerate(dims))
    num_steps = data.draw(st.integers(1, 30))
    gaps = {
        one.name: range(*sorted(data.draw(st.tuples(*[st.integers(0, num_steps)] * 2)))) for one in cameras
    }
    path = tmp_path_factory.mktemp("healthy") / "healthy.mcap"
    write_rich(
        path,
        num_steps,
        cameras=cameras,
        vectors=vectors,
        layout=EpisodeLayout(gop, gops, gop * gops * chunks),
        rate_hz=data.draw(st.sampled_from([30.0, 29.97, 10.0, 333.3])),
        gaps=gaps,
    )
    report = examine(path)
    assert list(report.lines()) == [report.summary]
    assert f"ok: {num_steps} steps" in report.summary


def test_a_healthy_file_is_one_line_and_exit_0(rich_episode):
    done = CliRunner().invoke(app, ["doctor", str(rich_episode)])
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1)
    assert f"{rich_episode}: ok: 50 steps at 30 Hz, 3 cameras, 3 vectors" in done.stdout


def test_one_bad_file_among_several_exits_2_and_every_line_names_its_file(rich_episode, tmp_path):
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(rich_episode.read_bytes()[:5000])
    done = CliRunner().invoke(app, ["doctor", str(rich_episode), str(cut), str(tmp_path / "absent.mcap")])
    assert done.exit_code == 2
    healthy, broken, absent = done.stdout.splitlines()
    assert healthy.startswith(f"{rich_episode}: ok")
    assert broken.startswith(f"{cut}: record.whole: byte ") and "file ends at byte 5,000" in broken
    assert (
        absent == f"{tmp_path}/absent.mcap: file: file: expected an episode file; found no such episode file"
    )


def test_json_holds_every_fault_with_its_place(rich_episode, tmp_path):
    path = tmp_path / "changed.mcap"
    message(ARM, lambda one: replace(one, log_time=one.log_time + 5))(rich_episode, path)
    done = CliRunner().invoke(app, ["doctor", "--json", str(rich_episode), str(path)])
    healthy, broken = json.loads(done.stdout)["files"]
    assert healthy == {"file": str(rich_episode), "ok": True, "level": None, "faults": []}
    (fault,) = [one for one in broken["faults"] if one["check"] == "topic.grid"]
    assert (fault["topic"], fault["steps"], fault["level"]) == (ARM, [[12, 13]], "fault")
    assert fault["found"].endswith(" ns") and fault["byte"] > 0


def test_warnings_alone_exit_1(tmp_path):
    """An extra topic whose messages jump in time: valid, but a reader in time order must hold every chunk."""
    path, described = tmp_path / "jumps.mcap", header(50, cameras=())
    end_ns = int(grid_times_ns(described.start_ns, 30.0, 50)[-1])
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors=vectors_of(described), extras=[EXTRA]
    ) as writer:
        for number in range(12):
            time_ns = end_ns if number % 2 else described.start_ns
            writer.add_extra(EXTRA.topic, time_ns, time_ns, bytes(300_000))
        writer.finish()
    done = CliRunner().invoke(app, ["doctor", str(path)])
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    assert (
        "chunk.overlap (warning): file: expected at most 2 chunks at any time, one per group; found" in line
    )


def test_a_remote_file_is_read_whole(rich_episode):
    store = fsspec.filesystem("memory")
    store.pipe("/episodes/one.mcap", rich_episode.read_bytes())
    assert "memory://episodes/one.mcap: ok" in "".join(examine("memory://episodes/one.mcap").lines())
    assert "no such episode file" in str(examine("memory://episodes/two.mcap").faults[0])
