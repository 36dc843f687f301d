"""Describing a source of recordings: its TOML, drafted from what lies in its landing folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dyna_assets.errors import UploadError
from dyna_assets.landing.draft import Draft, draft_source
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.source_toml import render_draft
from dyna_assets.landing.upload import is_hidden
from dyna_assets.names import MAX_NAME
from dyna_assets.workspace import Workspace
from dyna_train.config import load_config
from dyna_train.files import open_store, publish


def landing_uri(landing: str) -> str:
    """A URL as it is, a local folder as an absolute path."""
    return landing if "://" in landing else str(Path(landing).expanduser().resolve())


def source_name(landing: str) -> str:
    """A source's name from the last part of where it lands."""
    last = landing.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-._")[:MAX_NAME] or "landing"


def source_path(workspace: Workspace, name: str) -> Path:
    """Where the source's TOML lies."""
    return workspace.home.sources / f"{name}.toml"


def add_source(workspace: Workspace, name: str, landing: str) -> SourceProfile:
    """The source's profile; drafted and written as TOML first, unless a person has one already.

    Raises UploadError if the name is none, the folder is missing or empty, or the name lands elsewhere;
    RecordingError if no reader knows what the folder holds.
    """
    if name != source_name(name):
        raise UploadError(
            f"source name '{name}': expected up to {MAX_NAME} letters, digits, '-', '_' and '.', "
            f"beginning with a letter or digit; for example '{source_name(name)}'"
        )
    path = source_path(workspace, name)
    if path.exists():
        source = load_config(SourceProfile, path)
        if source.landing != landing:
            raise UploadError(
                f"{path}: source '{name}' lands in {source.landing}, not in {landing}. "
                "Rename the folder, or change 'landing' in that file"
            )
        return source
    draft = look_at(name, landing, **workspace.settings.storage_options(landing))
    with publish(path) as part:
        part.write_text(render_draft(draft), encoding="utf-8")
    return load_config(SourceProfile, path)


def look_at(name: str, landing: str, **storage_options: Any) -> Draft:
    """A first draft from what lies in `landing`: the folder itself, or the first one in it that is known.

    Raises UploadError if there is nothing to look at, RecordingError if no reader knows what is there.
    """
    fs, root = open_store(landing, **storage_options)
    if not fs.isdir(root):
        raise UploadError(f"{landing}: no such folder; expected one with recordings")
    folder = Folder(fs, root.rstrip("/"))
    try:
        files = folder.files()
    except PermissionError as error:
        raise UploadError(
            f"{landing}: may not be read: {error.strerror}. Let this user read the folder"
        ) from None
    if not any(not is_hidden(path) for path in files):
        raise UploadError(
            f"{landing}: the landing folder is empty. Put recordings into it (a LeRobot data set, .hdf5, .mcap, "
            "ROS 2 bags, .tfrecord, video with poses), or run `make demo` without LANDING to see simulated ones"
        )
    return draft_source(name, landing, folder)
