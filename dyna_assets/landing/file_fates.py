"""What became of each file of an upload (pure): read for a recording, by the reader besides, ignored, or lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from dyna_assets.landing.recording import FileInfo, RecordingRef
from dyna_assets.landing.upload import MARKER

Episodes = Mapping[int, tuple[str, Sequence[str]]]
"""id -> (name, the files it is read from)"""
Fate = Literal["recording", "metadata", "ignored", "marker", "unread", "unlisted", "missing"]
"""What became of a file: read for a recording; read by the reader besides; ignored by a rule of the source; the
marker; read by nobody; not in the marker, and so not read; said to be there, and not there."""
LOST: tuple[Fate, ...] = ("unread", "unlisted", "missing")
NAMED = 3
"""Recordings of a shared file that are named."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """One file. by: the recordings it is read for, or the pattern that names it."""

    path: str
    size_bytes: int
    fate: Fate
    by: str = ""


def unread_files(
    files: Iterable[str], refs: Iterable[RecordingRef], metadata: Sequence[str], ignore: Sequence[str]
) -> list[str]:
    """Files that are read for no recording, nor by the reader, nor ignored by a rule; sorted."""
    read = {name for ref in refs for name in ref.files}
    return sorted(name for name in files if name not in read and not _matching(name, (*metadata, *ignore)))


def file_lines(
    files: Mapping[str, FileInfo],
    listed: Collection[str] | None,
    episodes: Episodes,
    metadata: Sequence[str],
    ignore: Sequence[str],
) -> Iterator[FileLine]:
    """A line for every file, also for those that are said to be there and are not; see `upload_report`."""
    readers: dict[str, list[str]] = {}
    for name, parts in episodes.values():
        for part in parts:
            readers.setdefault(part, []).append(name)
    if listed is not None:
        yield FileLine(MARKER, 0, "marker")
    for path in sorted({*files, *(listed or ()), *readers}):
        size_bytes = files[path].size_bytes if path in files else 0
        yield FileLine(path, size_bytes, *_fate(path, files, listed, readers, metadata, ignore))


def _fate(
    path: str,
    files: Collection[str],
    listed: Collection[str] | None,
    readers: Mapping[str, Sequence[str]],
    metadata: Sequence[str],
    ignore: Sequence[str],
) -> tuple[Fate, str]:
    if path not in files:
        return "missing", ", ".join(readers.get(path, [MARKER])[:NAMED])
    if listed is not None and path not in listed:
        return "unlisted", ""
    if path in readers:
        names = readers[path]
        return "recording", ", ".join(names[:NAMED]) + (
            f" and {len(names) - NAMED} more" if names[NAMED:] else ""
        )
    if pattern := _matching(path, metadata):
        return "metadata", pattern
    pattern = _matching(path, ignore)
    return ("ignored", pattern) if pattern else ("unread", "")


def _matching(name: str, patterns: Sequence[str]) -> str:
    """The first pattern that the name matches, or ''."""
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), "")


def file_problems(lines: Sequence[FileLine]) -> Iterator[str]:
    """What is lost, one sentence for each way of it."""
    advice = {
        "unread": "read by nobody; name them under 'ignore' in the source's TOML, or say who reads them",
        "unlisted": f"not in {MARKER}, and so not read; upload them with a marker of their own",
        "missing": "not there any more; landed files must stay",
    }
    for fate in LOST:
        paths = [line.path for line in lines if line.fate == fate]
        if paths:
            noun = "file is" if len(paths) == 1 else "files are"
            yield f"{len(paths):,} {noun} {advice[fate]}. First: {paths[0]}"
