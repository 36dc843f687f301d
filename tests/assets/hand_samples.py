"""Videos with painted frame numbers, and pose files in every form that is read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from recordings import write_video

POINTS, AXES = 3, "xyz"


def value_of(side: str, frame: int, point: int, axis: str) -> float:
    """The coordinate that all forms of the sample files hold."""
    return frame + point / 4 + AXES.index(axis) / 16 + (100 if side == "right" else 0)


def confidence_of(frame: int, point: int) -> float:
    return 0.5 + (frame % 4) / 16 + point / 64


def wide_rows(
    frames: Iterable[int], *, unseen: Iterable[int] = (), num_points: int = POINTS
) -> list[dict[str, Any]]:
    """Rows of a wide table; in the frames `unseen` the left hand is not there."""
    rows = []
    for frame in frames:
        row: dict[str, Any] = {"frame": frame}
        for side in ("left", "right"):
            for point in range(num_points):
                hidden = side == "left" and frame in unseen
                for axis in AXES:
                    row[f"{side}_{point}_{axis}"] = math.nan if hidden else value_of(side, frame, point, axis)
                row[f"{side}_{point}_confidence"] = 0.0 if hidden else confidence_of(frame, point)
        rows.append(row)
    return rows


def long_rows(frames: Iterable[int], *, unseen: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Rows of a long table; what is not seen has no row."""
    return [
        {
            "frame": frame,
            "hand": side,
            "keypoint": point,
            **{axis: value_of(side, frame, point, axis) for axis in AXES},
            "confidence": confidence_of(frame, point),
        }
        for frame in frames
        for side in ("left", "right")
        for point in range(POINTS)
        if side == "right" or frame not in unseen
    ]


def frames_list(frames: Iterable[int], *, unseen: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Frames with the hands in each."""
    return [
        {
            "frame": frame,
            "hands": [
                {
                    "side": side,
                    "keypoints": [
                        [*(value_of(side, frame, point, axis) for axis in AXES), confidence_of(frame, point)]
                        for point in range(POINTS)
                    ],
                }
                for side in ("left", "right")
                if side == "right" or frame not in unseen
            ],
        }
        for frame in frames
    ]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, delimiter: str = ",") -> Path:
    """NaN is an empty cell."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        for row in rows:
            writer.writerow({key: "" if value != value else value for key, value in row.items()})
    return path


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def write_hand_video(folder: Path, num_frames: int, name: str = "take.mp4") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_video(folder / name, range(num_frames), fps=30)
    return folder / name


def write_poses(folder: Path, form: str, num_frames: int, *, unseen: Iterable[int] = ()) -> Path:
    """The sample poses in one of the forms, beside take.mp4."""
    frames, hidden = range(num_frames), set(unseen)
    rows = {"wide": wide_rows, "long": long_rows, "frames": frames_list}[form.partition(".")[0]](
        frames, unseen=hidden
    )
    path = folder / f"take.{form.rpartition('.')[2]}"
    if path.suffix == ".parquet":
        return write_parquet(path, rows)
    if path.suffix == ".jsonl":
        return write_lines(path, rows)
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
        return path
    return write_csv(path, rows, delimiter="\t" if path.suffix == ".tsv" else ",")


FORMS = (
    "wide.csv", "wide.tsv", "wide.parquet", "long.csv", "long.parquet", "frames.json", "frames.jsonl",
    "frames.parquet",
)  # fmt: skip
