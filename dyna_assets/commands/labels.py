"""The commands that look at labels: drift."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dyna_assets.commands.shared import AsJson, open_workspace, print_rows
from dyna_train.program import Exit

if TYPE_CHECKING:
    from dyna_assets.labels.drift import Compared


def drift(
    robot: Annotated[
        str | None, typer.Option(help="Only this robot. Robots without a name go by their source's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare every session's lags and offsets with its robot's other sessions, the farthest first.

    Exits 1 if a session differs.
    """
    from dyna_assets.labels.drift import compare, find_alarms, read_sessions

    sessions = read_sessions(open_workspace().warehouse, robot)
    compared = sorted(compare(sessions), key=lambda one: -abs(one.z))
    alarms = find_alarms(sessions)
    if as_json:
        rows = [
            {**asdict(one.session), "baseline": one.baseline, "z": one.z, "alarm": one.is_alarm}
            for one in compared
        ]
        print_rows(rows, as_json, title="drift")
    else:
        print_rows([drift_row(one) for one in compared], as_json, title="drift")
        typer.echo(f"{len(compared)} of {len(sessions)} sessions have others of their robot to compare with")
        for alarm in alarms:
            typer.echo(f"alarm: {alarm.says}")
    if alarms:
        raise typer.Exit(Exit.WARNING)


def drift_row(one: Compared) -> dict[str, str]:
    """A session as a person compares it: what it showed, what its robot's others did, and how far apart these are."""
    session = one.session
    return {
        "sigma": f"{one.z:+.1f}{' alarm' if one.is_alarm else ''}",
        "value": f"{session.value:.3g} ± {session.spread:.3g} {session.unit}".rstrip(),
        "others": f"{one.baseline:.3g}",
        "episodes": f"{session.num_episodes:,}",
        "session": session.session,
        "what": f"{session.robot}: {session.key} of {session.subject}",
    }
