"""An episode in Rerun: all cameras, and plots of all state and action vectors.

Rerun opens an episode file as it is (`rerun FILE`) and shows its cameras; vectors are messages it has no picture
for, and the plots have to be asked for. Its program takes a blueprint (.rbl) only for its own recordings, not for
an MCAP file (seen with 0.41). So the file goes through Rerun's SDK, which reads it as its program does, and
the vectors are added as scalars, with a blueprint that lays everything out. Written for and tried with 0.41.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import rerun as rr
import rerun.blueprint as rrb
from numpy.typing import NDArray

from dyna_train.episode.profile import EpisodeHeader, grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import Role
from dyna_train.files import publish
from dyna_train.look.palette import viewer_colour
from dyna_train.look.panels import Line, Panel, plan_panels

_APPLICATION = "dyna"
_TIMELINE = "message_log_time"  # Rerun's name for MCAP's log time, which is our grid
_WIDTHS: dict[Role, float] = {
    "state": 2.0,
    "action": 1.0,
}  # it has no dashes; equal names share a legend entry


def show_episode(episode: Episode) -> None:
    """Open a Rerun viewer on the episode file, which must be local."""
    recording = rr.RecordingStream(_APPLICATION, recording_id=str(episode.header.episode_id))
    recording.spawn(hide_welcome_screen=True, default_blueprint=blueprint_of(episode.header))
    _record(episode, recording)


def save_recording(episode: Episode, path: str | Path) -> None:
    """Write a Rerun recording with video, plots and their layout, which `rerun` opens anywhere.

    It appears under `path` whole or not at all. Raises BadInput for a place where no file can be, OSError if
    it cannot be written.
    """
    recording = rr.RecordingStream(_APPLICATION, recording_id=str(episode.header.episode_id))
    # Through memory: when the disk is full, Rerun's own file writer waits for itself for ever (seen with 0.41).
    stream = rr.binary_stream(recording)
    recording.send_blueprint(blueprint_of(episode.header), make_active=False, make_default=True)
    with publish(path) as part:
        _record(episode, recording)
        part.write_bytes(stream.read() or b"")


def blueprint_of(header: EpisodeHeader) -> rrb.Blueprint:
    """Cameras on the left, plots on the right."""
    pictures = [rrb.Spatial2DView(origin=track.topic, name=track.name) for track in header.cameras]
    pictures += [rrb.Spatial2DView(origin=track.topic, name=track.name) for track in header.depths]
    plots = [
        rrb.TimeSeriesView(origin=_plot_path(number), name=panel.label)
        for number, panel in enumerate(plan_panels(header.vectors))
    ]
    grids = [rrb.Grid(*views) for views in (pictures, plots) if views]
    return rrb.Blueprint(rrb.Horizontal(*grids), collapse_panels=True)


def _record(episode: Episode, recording: rr.RecordingStream) -> None:
    """Send everything; returns when it is on its way, and leaving the process waits for it."""
    header = episode.header
    recording.send_recording_name(header.name or str(header.episode_id))
    recording.log_file_from_path(episode.uri)
    grid_T = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
    times = rr.TimeColumn(_TIMELINE, timestamp=grid_T.view("datetime64[ns]"))
    for number, panel in enumerate(plan_panels(header.vectors)):
        for role, lines, values_TD in _by_role(panel, episode):
            path = f"{_plot_path(number)}/{role}"
            style = rr.SeriesLines(
                names=[line.name for line in lines],
                colors=[int(f"{viewer_colour(line.colour)[1:]}ff", 16) for line in lines],
                widths=[_WIDTHS[role]] * len(lines),
            )
            recording.log(path, style, static=True)
            recording.send_columns(path, indexes=[times], columns=rr.Scalars.columns(scalars=values_TD))
    recording.flush()


def _by_role(panel: Panel, episode: Episode) -> Iterator[tuple[Role, list[Line], NDArray[np.float32]]]:
    """The lines of a panel that are states, then those that are actions, with values float32 [T, D]."""
    for role in _WIDTHS:
        lines = [line for line in panel.lines if line.role == role]
        if lines:
            columns = [episode.vector(line.topic)[:, line.index] for line in lines]
            yield role, lines, np.stack(columns, axis=1)


def _plot_path(number: int) -> str:
    return f"/plot/{number}"
