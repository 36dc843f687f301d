"""`dyna-train plan`: the layout of episode files, and what reading them will cost."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dyna_train.episode.layout import (
    LOCAL_STORE,
    PATTERNS,
    REMOTE_STORE,
    EpisodeLayout,
    pattern_named,
)
from dyna_train.errors import BadInput

if TYPE_CHECKING:
    from dyna_train.episode.prediction import Prediction
    from dyna_train.episode.trial import Trial
    from dyna_train.video.encode import Quality

# No robot has more of them, and planning for more would not end.
MAX_RATE_HZ, MAX_CAMERAS, MAX_SIDE = 1000, 1000, 16384
STORES = {"remote": REMOTE_STORE, "local": LOCAL_STORE}
_BIMANUAL_DIMS = (14, 14)  # state and action of two arms: where no file says it; a few per mille of the bytes


def plan(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Video or episode file: some seconds of it are encoded twice to learn the sizes."
        ),
    ] = None,
    pattern: Annotated[str, typer.Option(help=f"How models read: {', '.join(PATTERNS)}.")] = "mixed",
    rate: Annotated[float | None, typer.Option(help="Steps per second; default: the file's, or 30.")] = None,
    cameras: Annotated[
        int | None,
        typer.Option(help="How many there are; default 3, or 1 like FILE.", min=1, max=MAX_CAMERAS),
    ] = None,
    size: Annotated[str | None, typer.Option(help="WxH of every camera; default 640x480.")] = None,
    crf: Annotated[int, typer.Option(help="Quality of the video, 0 to 51; lower is better.")] = 18,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Plan the layout for a read pattern, and predict what a window costs from each store."""
    from dyna_train.episode.planning import plan_layout  # av takes a while to load
    from dyna_train.episode.prediction import predict
    from dyna_train.video.encode import Quality

    chosen = pattern_named(pattern)
    if rate is not None:
        _check_rate("--rate", rate)
    trial = _trial(file, Quality(crf), rate, cameras, size)
    _check_rate(f"{file}: its rate", trial.rate_hz)
    layout = plan_layout(chosen, trial.rate_hz, sizes=trial.sizes)
    predictions = {
        name: predict(chosen, layout, trial.rate_hz, sizes=trial.sizes, store=store)
        for name, store in STORES.items()
    }
    if as_json:
        found = {
            "pattern": pattern,
            "rate_hz": trial.rate_hz,
            "crf": crf,
            "sizes_from": str(file) if file else "assumed",
            "sizes": asdict(trial.sizes),
            "layout": asdict(layout),
            "predictions": {name: asdict(prediction) for name, prediction in predictions.items()},
        }
        typer.echo(json.dumps(found, indent=2))
        return
    origin = f"sizes tried on {file.name}" if file else "sizes assumed; name a FILE to try them"
    _print(f"{pattern}, crf {crf}: {origin}", trial, layout, predictions, Console())


def _trial(
    file: Path | None, quality: Quality, rate: float | None, cameras: int | None, size: str | None
) -> Trial:
    """What the footage weighs: tried, or assumed where there is no file."""
    from dyna_train.episode.sizes import SizeModel, StateSizes
    from dyna_train.episode.trial import Trial, try_file

    if file is None:
        frame_sizes = (_frame_size(size or "640x480"),) * (3 if cameras is None else cameras)
        sizes = SizeModel.assumed(frame_sizes, quality, dims=_BIMANUAL_DIMS)
        return Trial(sizes, 30.0 if rate is None else rate, frame_sizes)
    if size is not None or rate is not None:
        raise BadInput(f"{file}: the file itself says its frame size and rate; leave --size and --rate out")
    state = StateSizes.assumed(_BIMANUAL_DIMS)
    with Console(stderr=True).status(f"encoding some seconds of {file.name} twice"):
        return try_file(file, quality, state=state, num_cameras=cameras)


def _frame_size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not found:
        raise BadInput(f"--size {text}: expected width x height in pixels, as 640x480")
    width, height = (
        int(side) if len(side) <= len(str(MAX_SIDE)) else MAX_SIDE + 1 for side in found.groups()
    )
    if max(width, height) > MAX_SIDE:
        raise BadInput(f"--size {text}: expected at most {MAX_SIDE} pixels a side")
    return width, height


def _check_rate(what: str, rate_hz: float) -> None:
    if rate_hz > MAX_RATE_HZ:
        raise BadInput(f"{what} is {rate_hz:g} Hz; a layout can be planned for up to {MAX_RATE_HZ:,} Hz")


def _print(
    title: str, trial: Trial, layout: EpisodeLayout, predictions: Mapping[str, Prediction], console: Console
) -> None:
    rate_hz, sizes = trial.rate_hz, trial.sizes
    counts = Counter(f"{width}x{height}" for width, height in trial.frame_sizes)
    frames = ", ".join(f"{count} of {size}" for size, count in counts.items()) or "none"
    chunk_mb = layout.steps_per_chunk * sizes.video_step_bytes(layout.gop) / 1e6
    any_store = next(iter(predictions.values()))  # how the file lies does not depend on where
    facts = {
        "cameras": f"{frames} at {rate_hz:g} Hz",
        "GOP": f"{_steps(layout.gop, rate_hz)}, a keyframe is {sizes.keyframe_ratio:.1f} other frames",
        "video chunk": f"{layout.gops_per_chunk} GOPs, {_steps(layout.steps_per_chunk, rate_hz)}, {chunk_mb:.2f} MB",
        "state block": _steps(layout.steps_per_block, rate_hz),
        "file": f"{any_store.file_mb_per_minute:.2f} MB a minute",
    }
    about = Table(title=title, title_justify="left", show_header=False, box=None)
    for name, value in facts.items():
        about.add_row(name, value)
    console.print(about)
    costs = Table("a window, mean over its phases", title_justify="left")
    for name in predictions:
        store = STORES[name]
        costs.add_column(
            f"{name}\n{store.latency_s * 1e3:g} ms, {store.bandwidth_bytes_per_s / 1e6:,.0f} MB/s",
            justify="right",
        )
    for name, text in _COSTS.items():
        costs.add_row(name, *(text(prediction) for prediction in predictions.values()))
    console.print(costs)


def _steps(count: int, rate_hz: float) -> str:
    return f"{count} steps ({count / rate_hz:.2f} s)"


_COSTS: Mapping[str, Callable[[Prediction], str]] = {
    "requests": lambda it: f"{it.requests:.2f}",
    "MB read": lambda it: f"{it.read_bytes / 1e6:.3f}",
    "MB needed": lambda it: f"{it.needed_bytes / 1e6:.3f}",
    "latency, ms, without decoding": lambda it: f"{it.latency_s * 1e3:.2f}",
    "frames decoded, all cameras": lambda it: f"{it.decoded_frames:.1f}",
    "video chunks a stock reader fetches": lambda it: f"{it.video_chunks:.2f}",
    "state chunks a stock reader fetches": lambda it: f"{it.state_chunks:.2f}",
}
