"""What viewers are told: which lines share a plot, the Foxglove layout, the Rerun recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from episode_samples import header
from hypothesis import given
from hypothesis import strategies as st
from look_samples import APP, ODD, many
from typer.testing import CliRunner

from dyna_train.episode.tracks import DepthTrack, VectorTrack
from dyna_train.errors import BadInput, MissingExtra
from dyna_train.look.foxglove import foxglove_layout
from dyna_train.look.palette import LINES
from dyna_train.look.panels import plan_panels

COLUMNS = ("VideoStream:sample", "Scalars:scalars", "Image:buffer")
RERUN = Path(sys.executable).with_name("rerun")

tracks = st.builds(
    lambda name, role, names, unit: VectorTrack(name, role, tuple(names), (unit,) * len(names)),
    st.sampled_from(["arm", "hand", "base.x"]),
    st.sampled_from(["state", "action"]),
    st.lists(st.sampled_from(["a", "b", "c", "d"]) | st.text("xyz", max_size=3), min_size=1, max_size=30),
    st.sampled_from(["rad", "m", ""]),
)


@given(vectors=st.lists(tracks, max_size=6, unique_by=lambda track: track.topic))
def test_panels_show_every_dimension_once_and_few_names_each(vectors):
    panels = plan_panels(vectors)
    shown = [(line.topic, line.index) for panel in panels for line in panel.lines]
    assert sorted(shown) == sorted((track.topic, index) for track in vectors for index in range(track.dim))
    for panel in panels:
        assert 1 <= len(panel.legend) <= 7
        colours = {}
        for line in panel.lines:
            assert colours.setdefault((line.colour, line.role, line.name), line.topic) == line.topic


def test_action_shares_the_panel_of_the_state_with_its_name_or_its_dimensions():
    joints = tuple(f"joint_{number}" for number in range(3))
    state = VectorTrack("position", "state", joints, ("rad",) * 3)
    action = VectorTrack("goal", "action", joints, ("rad",) * 3)
    other = VectorTrack("base", "action", ("v",), ("m/s",))
    first, second = plan_panels((state, action, other))
    assert {line.topic for line in first.lines} == {"/state/position", "/action/goal"}
    assert {line.colour for line in first.lines if line.name == "joint_1"} == {LINES[1]}
    assert [line.topic for line in second.lines] == ["/action/base"]
    assert [len(panel.legend) for panel in plan_panels((many(26),))] == [7, 7, 6, 6]


def leaves(node) -> Iterator[str]:
    if isinstance(node, str):
        yield node
        return
    assert set(node) == {"direction", "first", "second", "splitPercentage"}
    assert node["direction"] in ("row", "column") and 0 < node["splitPercentage"] < 100
    yield from leaves(node["first"])
    yield from leaves(node["second"])


@pytest.mark.parametrize("name", [*ODD, "painted"])
def test_the_foxglove_layout_shows_every_topic_of_the_file_once(name):
    described = ODD.get(name, replace(header(3), depths=(DepthTrack("head", 32, 24),)))
    layout = json.loads(json.dumps(foxglove_layout(described)))
    assert sorted(leaves(layout["layout"])) == sorted(layout["configById"])
    images = [
        panel["imageMode"]["imageTopic"] for panel in layout["configById"].values() if "imageMode" in panel
    ]
    assert sorted(images) == sorted(track.topic for track in (*described.cameras, *described.depths))
    paths = [path for panel in layout["configById"].values() for path in panel.get("paths", ())]
    assert sorted(path["value"] for path in paths) == sorted(
        f"{track.topic}.values[{index}]" for track in described.vectors for index in range(track.dim)
    )
    assert all(path["enabled"] and path["timestampMethod"] == "receiveTime" for path in paths)


def test_foxglove_paths_quote_a_topic_with_a_dot_and_label_lines_by_name():
    described = header(3, (), (VectorTrack("left.arm", "action", ("größe",), ("m",)),))
    (panel,) = foxglove_layout(described)["configById"].values()
    (path,) = panel["paths"]
    assert path["value"] == '"/action/left.arm".values[0]'
    assert (path["label"], path["lineStyle"]) == ("größe (action)", "dashed")
    assert panel["foxglovePanelTitle"] == "left.arm [m]"


def test_the_foxglove_command_prints_the_layout_alone(painted):
    shown = CliRunner().invoke(APP, ["foxglove-layout", str(painted)])
    assert json.loads(shown.stdout)["configById"]["Image!1"]["imageMode"] == {
        "imageTopic": "/camera/left.wrist/video"
    }


def test_a_rerun_recording_holds_all_cameras_and_plots_and_how_to_lay_them_out(rich, tmp_path):
    if not RERUN.is_file():
        pytest.skip(f"no rerun command at {RERUN}; it comes with the view extra")
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "NO_COLOR": "1"}
    recording = tmp_path / "rich.rrd"
    code = "import typer; from dyna_train.commands.look import rerun; typer.run(rerun)"
    command = [sys.executable, "-c", code, str(rich), "--save", str(recording)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    printed = subprocess.run(
        [RERUN, "rrd", "print", "-v", recording],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    rows = Counter()
    for line in printed.splitlines():
        if line.startswith("Chunk("):
            entity, count = line.split(" - ")[1], int(line.split(" with ")[1].split()[0])
            rows.update({(entity, column): count for column in COLUMNS if column in line})
    assert rows == {
        ("/camera/top/video", "VideoStream:sample"): 60,
        ("/camera/left.wrist/video", "VideoStream:sample"): 48,
        ("/camera/right_wrist/video", "VideoStream:sample"): 60,
        ("/depth/head", "Image:buffer"): 60,
        ("/plot/0/state", "Scalars:scalars"): 60,
        ("/plot/0/action", "Scalars:scalars"): 60,
        ("/plot/1/state", "Scalars:scalars"): 60,
        ("/plot/2/state", "Scalars:scalars"): 60,
    }
    assert printed.count("ViewContents:query") == 3 + 1 + 3  # cameras, depth, plots


def test_rerun_names_what_is_missing(painted, tmp_path, monkeypatch):
    refused = CliRunner().invoke(APP, ["rerun", str(tmp_path / "absent.mcap")])
    with pytest.raises(BadInput, match=r"absent\.mcap: no such local file; Rerun reads local files"):
        raise refused.exception
    monkeypatch.delitem(sys.modules, "dyna_train.look.rerun_view", raising=False)
    monkeypatch.setitem(sys.modules, "rerun", None)
    refused = CliRunner().invoke(APP, ["rerun", str(painted)])
    with pytest.raises(MissingExtra, match=r"needs the module 'rerun', .* 'dyna-data-engine\[view\]'"):
        raise refused.exception


def test_the_commands_load_neither_torch_nor_av_nor_pillow():
    code = "import sys, dyna_train.commands.look; print({'torch', 'av', 'PIL', 'rerun'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
