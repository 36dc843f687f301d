"""What a listing of a local folder passes over without a word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dyna_assets.landing.recording import Folder, is_local

_AS_EFFECTIVE_USER = os.access in os.supports_effective_ids


def blind_spots(folder: Folder) -> dict[str, str]:
    """Path below `folder` -> why nothing of it is seen: it may not be read, leads out of the folder, or is no file.

    Names that begin with a dot are nobody's. A link to a folder inside `folder` hides nothing: it is not
    followed, and what it leads to is listed where it lies. Of a store that is not local nothing is known.
    """
    if not is_local(folder.fs):
        return {}
    root = os.path.realpath(folder.path)
    return {os.path.relpath(path, root): why for path, why in _look(root, root)}


def _look(place: str, root: str) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(place) as entries:
            inside = [entry for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return  # it went away meanwhile
    except OSError as error:
        yield place, f"may not be listed ({error.strerror})"
        return
    for entry in inside:
        if entry.is_symlink():
            yield from _look_at_link(entry.path, root)
        elif entry.is_dir():
            yield from _look(entry.path, root)
        elif not entry.is_file():
            yield entry.path, "is neither a file nor a folder"
        elif not os.access(entry.path, os.R_OK, effective_ids=_AS_EFFECTIVE_USER):
            yield entry.path, "may not be read (Permission denied)"


def _look_at_link(path: str, root: str) -> Iterator[tuple[str, str]]:
    """Links to files are listed, with where they lead; these are the others."""
    target = os.path.realpath(path)
    if not os.path.exists(target):
        yield path, f"is a link to {os.readlink(path)}, where nothing is"
    elif os.path.isdir(target) and not Path(target).is_relative_to(root):
        yield path, f"is a link to a folder outside, {os.readlink(path)}, which is not followed"
