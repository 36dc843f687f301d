"""A summary as text for a terminal; every number with its unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dyna_train.episode.stretches import Stretches, steps_text
from dyna_train.look.contents import CompressionContents, McapContents, TopicContents
from dyna_train.look.summary import (
    CameraSummary,
    DepthSummary,
    EpisodeSummary,
    VectorSummary,
    utc,
)

_MOST_GAPS = 4  # of one camera, written out


def report(summary: EpisodeSummary | McapContents) -> Iterator[RenderableType]:
    """What to print, from top to bottom."""
    if isinstance(summary, McapContents):
        yield from _foreign(summary)
        return
    yield Text.assemble((f"episode {summary.episode_id}", "bold"), f"  {summary.name}")
    yield _facts(_episode_facts(summary))
    if summary.cameras:
        yield _cameras(summary.cameras)
        yield _facts(_codecs(summary.cameras))
    if summary.depths:
        yield _depths(summary.depths)
    rows: list[CameraSummary | DepthSummary] = [*summary.cameras, *summary.depths]
    gaps = {row.name: _gaps(row.gaps, summary.rate_hz) for row in rows if row.gaps}
    if gaps:
        yield Text("gaps", "bold")
        yield _facts(gaps)
    for vector in summary.vectors:
        yield _vector(vector)
    if summary.events or summary.extras:
        yield _topics("other topics", (*summary.events, *summary.extras))


def _episode_facts(summary: EpisodeSummary) -> dict[str, str]:
    layout = summary.layout
    return {
        "file": f"{summary.uri}, {_size(summary.size_bytes)}",
        "source": summary.source,
        "robot": summary.robot,
        "task": summary.task,
        "success": {True: "yes", False: "no", None: "nobody said"}[summary.success],
        "start": f"{summary.start_utc} UTC",
        "duration": f"{summary.duration_s:.3f} s, {summary.num_steps:,} steps at {summary.rate_hz:g} Hz",
        "layout": f"GOP {layout.gop_steps} steps, video chunk {layout.steps_per_chunk} steps, "
        f"state block {layout.steps_per_block} steps",
        "chunks": _compressions(layout.compressions),
        "index": _size(layout.index_bytes),
        "versions": _pairs(summary.versions),
        "quality": _pairs(summary.quality),
    }


def _foreign(contents: McapContents) -> Iterator[RenderableType]:
    yield Text.assemble(("not an episode file", "bold"), f"  an MCAP file written by '{contents.library}'")
    if contents.tells_of_an_episode:
        yield Text("It was one until another tool rewrote it: dyna-train regroup restores its layout.")
    attachments = (f"{name} ({_size(size)})" for name, size in contents.attachment_bytes.items())
    yield _facts(
        {
            "file": f"{contents.uri}, {_size(contents.size_bytes)}",
            "profile": contents.profile or "none",
            "messages": f"{contents.num_messages:,} in {contents.duration_s:.3f} s",
            "start": "no messages" if contents.start_ns is None else f"{utc(contents.start_ns)} UTC",
            "chunks": _compressions(contents.compressions) or "none",
            "attachments": ", ".join(attachments) or "none",
            "metadata": ", ".join(contents.metadata_names) or "none",
        }
    )
    if contents.topics:
        yield _topics("topics", contents.topics)


def _cameras(cameras: Sequence[CameraSummary]) -> RenderableType:
    columns = (
        "size px",
        "frames",
        "MB/min",
        "kbit/frame",
        "bit/px",
        "skew max ms",
        "skew mean ms",
        "missing",
    )
    table = _table("cameras", *columns)
    for camera in cameras:
        table.add_row(
            Text(camera.name),
            f"{camera.width}x{camera.height}",
            f"{camera.num_frames:,}",
            _number(camera.mb_per_minute, ".2f"),
            _number(camera.kbit_per_frame, ".1f"),
            _number(camera.bits_per_pixel, ".3f"),
            _number(camera.skew.max_ms, ".2f"),
            _number(camera.skew.mean_ms, ".2f"),
            _missing(camera.gaps),
        )
    return _inset(table)


def _depths(depths: Sequence[DepthSummary]) -> RenderableType:
    table = _table("depth", "size px", "unit", "frames", "skew max ms", "skew mean ms", "missing")
    for depth in depths:
        table.add_row(
            Text(depth.name),
            f"{depth.width}x{depth.height}",
            f"{depth.unit_m:g} m",
            f"{depth.num_frames:,}",
            _number(depth.skew.max_ms, ".2f"),
            _number(depth.skew.mean_ms, ".2f"),
            _missing(depth.gaps),
        )
    return _inset(table)


def _vector(vector: VectorSummary) -> RenderableType:
    table = _table(vector.topic, "unit", "min", "mean", "max", "not finite")
    skew = f"skew max {_number(vector.skew.max_ms, '.2f')} ms, mean {_number(vector.skew.mean_ms, '.2f')} ms"
    table.caption = f"{vector.role}, {len(vector.dimensions)} dim, {skew}"
    for one in vector.dimensions:
        numbers = (_number(value, ".4g") for value in (one.min, one.mean, one.max))
        table.add_row(Text(one.name), Text(one.unit or "unknown"), *numbers, f"{one.num_not_finite:,}")
    return _inset(table)


def _topics(title: str, topics: Sequence[TopicContents]) -> RenderableType:
    table = _table(title, "schema", "encoding", "messages", "rate")
    for topic in topics:
        rate = "-" if topic.rate_hz is None else f"{topic.rate_hz:.2f} Hz"
        schema = Text(topic.schema or "none")
        table.add_row(Text(topic.topic), schema, Text(topic.encoding), f"{topic.num_messages:,}", rate)
    return _inset(table)


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    table.add_column(Text(first), overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _facts(facts: Mapping[str, str]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(name), Text(value or "not recorded"))  # not markup: a task may hold [brackets]
    return _inset(table)


def _inset(table: Table) -> RenderableType:
    return Padding(table, (0, 0, 1, 2))


def _codecs(cameras: Sequence[CameraSummary]) -> dict[str, str]:
    """Codec parameters by the cameras that have them; just `codec` where all have the same."""
    names: dict[str, list[str]] = {}
    for camera in cameras:
        names.setdefault(camera.codec_params, []).append(camera.name)
    if len(names) == 1:
        return {"codec": cameras[0].codec_params}
    return {f"codec of {', '.join(known)}": params for params, known in names.items()}


def _gaps(gaps: Stretches, rate_hz: float) -> str:
    parts = [
        f"{steps_text([gap])} ({gap.start / rate_hz:.2f}-{gap.stop / rate_hz:.2f} s)"
        for gap in gaps[:_MOST_GAPS]
    ]
    more = [f"and {len(gaps) - _MOST_GAPS} more"] if len(gaps) > _MOST_GAPS else []
    return ", ".join([*parts, *more])


def _missing(gaps: Stretches) -> str:
    return f"{sum(map(len, gaps)):,}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _compressions(compressions: Sequence[CompressionContents]) -> str:
    return ", ".join(
        f"{one.num_chunks:,} uncompressed, {_size(one.stored_bytes)}"
        if one.compression == "none"
        else f"{one.num_chunks:,} {one.compression}, {_size(one.stored_bytes)} ({_size(one.unpacked_bytes)} unpacked)"
        for one in compressions
    )


def _size(num_bytes: int) -> str:
    return f"{num_bytes:,} bytes" if num_bytes < 100_000 else f"{num_bytes / 1e6:.2f} MB"


def _pairs(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs.items())
