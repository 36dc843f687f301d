"""Pose files: how they are found and read, whatever their form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named, json_line, open_file
from dyna_assets.landing.sources.hand_video.frames import poses_of_frames
from dyna_assets.landing.sources.hand_video.poses import HandPoses
from dyna_assets.landing.sources.hand_video.tables import poses_of_table

TABLES, LINES = (".csv", ".tsv", ".parquet"), (".jsonl", ".ndjson")
POSE_SUFFIXES = (*TABLES, *LINES, ".json")
MAX_JSON_BYTES = 64 << 20
"""One JSON text is parsed whole and takes ten times its size in memory; JSON lines are not."""
MAX_LINE_BYTES = 8 << 20
ROWS_AT_ONCE = 1000
DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, RecursionError)
NULLS = ["", "nan", "NaN", "NAN", "null", "None", "NA"]


def read_poses(folder: Folder, name: str) -> HandPoses:
    """The poses in the file `name`. Raises RecordingError naming the row, frame or column that is wrong."""
    where = folder.at(name)
    with (
        open_file(folder, name) as file,
        damage_named(DAMAGE, lambda error: f"{where}: cannot be read as {_kind(name)} ({_one_line(error)})"),
    ):
        if name.lower().endswith(TABLES):
            table = pq.read_table(file) if name.lower().endswith(".parquet") else _csv(file)
            if "hands" in table.column_names:
                return poses_of_frames(_rows(table), where)
            return poses_of_table(table, where)
        if name.lower().endswith(LINES):
            return poses_of_frames(_lines(file, where), where)
        return _whole(file, where)


def _csv(file: IO[bytes]) -> pa.Table:
    """Comma, semicolon or tab, whichever the head has most of."""
    head = file.read(1 << 16).split(b"\n", 1)[0]
    file.seek(0)
    delimiter = max(",;\t", key=lambda mark: head.count(mark.encode()))
    parse = pacsv.ParseOptions(delimiter=delimiter)
    convert = pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=True)
    return pacsv.read_csv(file, parse_options=parse, convert_options=convert)


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()


def _lines(file: IO[bytes], where: str) -> Iterator[Any]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES:
            raise RecordingError(
                f"{where}: line {number} is over {MAX_LINE_BYTES:,} bytes long, expected one frame"
            )
        if line.strip():
            yield json_line(line, f"{where}: line {number}")


def _whole(file: IO[bytes], where: str) -> HandPoses:
    """A list of frames, or an object with "frames" and facts about all of them."""
    size_bytes = file.seek(0, 2)
    file.seek(0)
    if size_bytes > MAX_JSON_BYTES:
        raise RecordingError(
            f"{where}: {size_bytes:,} bytes of JSON in one piece, expected {MAX_JSON_BYTES:,} at most; "
            "write one frame a line (.jsonl), or Parquet"
        )
    data = json.load(file)
    frames = data.get("frames") if isinstance(data, dict) else data
    if not isinstance(frames, list):
        raise RecordingError(
            f'{where}: expected a list of frames or {{"frames": [...]}}, found {str(data)[:80]}'
        )
    facts = {key: value for key, value in data.items() if key != "frames"} if isinstance(data, dict) else {}
    return poses_of_frames(frames, where, facts)


def _kind(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
