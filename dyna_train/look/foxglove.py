"""A Foxglove layout that shows all of one episode: an Image panel per camera, a Plot panel per group of lines.

The format is that of layout files as the Foxglove app exports and imports them ("Import from file"): panels by
id in `configById`, their arrangement as a tree of splits in `layout`. It came with Foxglove Studio 1 and holds in
Foxglove 2 (followed here: exports of 2.49, and the layouts beside foxglove-sdk 0.30) and in Lichtblick, the open
fork of Studio. `lineStyle` is younger; where it is not known, actions are drawn solid. The layout API of
foxglove-sdk writes another format, which only its notebook widget reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil
from typing import Any

from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import CameraTrack, DepthTrack
from dyna_train.look.palette import viewer_colour
from dyna_train.look.panels import Line, Panel, plan_panels

_PLAIN_TOPIC = re.compile(r"[A-Za-z0-9_/-]+")
_VIDEO_SHARE = 50  # percent of the width for the pictures, where there are plots too

Node = str | dict[str, Any]
"""A panel's id, or a split: `first`, `second`, `direction`, `splitPercentage`."""


def foxglove_layout(header: EpisodeHeader) -> dict[str, Any]:
    """The layout for the episode of `header`, ready for `json.dump`."""
    tracks: list[CameraTrack | DepthTrack] = [*header.cameras, *header.depths]
    pictures = {f"Image!{number}": _image(track) for number, track in enumerate(tracks)}
    plots = {f"Plot!{number}": _plot(panel) for number, panel in enumerate(plan_panels(header.vectors))}
    grids = [_grid(list(panels)) for panels in (pictures, plots) if panels]
    layout = grids[0] if len(grids) == 1 else _split("row", grids[0], grids[1], _VIDEO_SHARE)
    return {
        "configById": {**pictures, **plots},
        "globalVariables": {},
        "userNodes": {},
        "playbackConfig": {"speed": 1},
        "layout": layout,
    }


def message_path(topic: str, index: int) -> str:
    """Where Foxglove finds dimension `index` of a vector topic; a name with a dot is quoted."""
    name = topic if _PLAIN_TOPIC.fullmatch(topic) else f'"{topic}"'
    return f"{name}.values[{index}]"


def _image(track: CameraTrack | DepthTrack) -> dict[str, Any]:
    return {"foxglovePanelTitle": track.name, "imageMode": {"imageTopic": track.topic}}


def _plot(panel: Panel) -> dict[str, Any]:
    return {
        "foxglovePanelTitle": panel.label,
        "paths": [_path(line) for line in panel.lines],
        "xAxisVal": "timestamp",
        "isSynced": True,
        "showLegend": True,
        "legendDisplay": "floating",
        "showPlotValuesInLegend": False,
        "showXAxisLabels": True,
        "showYAxisLabels": True,
        "sidebarDimension": 240,
    }


def _path(line: Line) -> dict[str, Any]:
    """One line; receiveTime is MCAP's log time, which is the grid."""
    return {
        "value": message_path(line.topic, line.index),
        "label": f"{line.name} ({line.role})",
        "color": viewer_colour(line.colour),
        "lineStyle": "dashed" if line.role == "action" else "solid",
        "enabled": True,
        "timestampMethod": "receiveTime",
    }


def _grid(ids: Sequence[str]) -> Node:
    """Panels in rows of equal height, about as many rows as columns."""
    num_columns = ceil(len(ids) ** 0.5)
    rows = [ids[start : start + num_columns] for start in range(0, len(ids), num_columns)]
    return _line("column", [_line("row", row) for row in rows])


def _line(direction: str, nodes: Sequence[Node]) -> Node:
    """Nodes side by side, all of the same size."""
    if len(nodes) == 1:
        return nodes[0]
    return _split(direction, nodes[0], _line(direction, nodes[1:]), 100 / len(nodes))


def _split(direction: str, first: Node, second: Node, percentage: float) -> Node:
    return {"direction": direction, "first": first, "second": second, "splitPercentage": percentage}
