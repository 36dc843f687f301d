"""The one folder where everything of an installation lives: DYNA_HOME."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dyna_assets.errors import SetupError

UNUSABLE = frozenset('%*?[]{}"\\$;\n\r\t')
"""Characters of a path that PostgreSQL's programs, delta-rs or DuckDB do not take as they are."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where this installation keeps its files. `path` is absolute.

    postgres/      the embedded database (data folder, log, lock)
    dagster/       DAGSTER_HOME: instance settings, compute logs
    landing/       the default landing folder
    lake/          Delta tables, episode files, manifests (unless settings.toml names another place)
    sources/       one TOML file per source
    runs/          training runs
    settings.toml  optional
    """

    path: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Home:
        """DYNA_HOME, or ~/.dyna. The only place that reads the variable."""
        return cls.at(env.get("DYNA_HOME") or "~/.dyna")

    @classmethod
    def at(cls, path: str | Path) -> Home:
        """The home at `path`; `~` and links are resolved, so that one folder has one name."""
        try:
            return cls(Path(path).expanduser().resolve())
        except RuntimeError as error:  # no home directory to expand, or a loop of links
            raise SetupError(f"{path}: {error}. Set DYNA_HOME to a folder that can be written") from None

    @property
    def postgres(self) -> Path:
        """Folder of the embedded database."""
        return self.path / "postgres"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME."""
        return self.path / "dagster"

    @property
    def landing(self) -> Path:
        """The default landing folder."""
        return self.path / "landing"

    @property
    def lake(self) -> Path:
        """The default place of tables, episode files and manifests."""
        return self.path / "lake"

    @property
    def sources(self) -> Path:
        """Folder of source profiles."""
        return self.path / "sources"

    @property
    def runs(self) -> Path:
        """Folder of training runs."""
        return self.path / "runs"

    @property
    def settings(self) -> Path:
        """The settings file; it need not exist."""
        return self.path / "settings.toml"

    def prepare(self) -> Home:
        """Create the folder and its rooms; safe to repeat. Returns itself.

        Raises SetupError if the place cannot be created or written, or has a name that the tools under us
        take for something else (a pattern, an escape, a quote).
        """
        strange = sorted(set(str(self.path)) & UNUSABLE)
        if strange:
            raise SetupError(
                f"{self.path}: expected a path without {' '.join(map(repr, strange))}, which the database or Delta "
                "Lake cannot take. Set DYNA_HOME to another folder"
            )
        rooms = (self.postgres, self.dagster, self.landing, self.lake, self.sources, self.runs)
        for folder in (self.path, *rooms):
            _make_writable(folder)
        return self


def _make_writable(folder: Path) -> None:
    """Create `folder` and prove that it takes a file: permission bits do not tell, least of all to root."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        at = "" if error.filename in (None, str(folder)) else f" (at {error.filename})"
        raise SetupError(
            f"{folder}: expected a folder that user id {os.geteuid()} can write, found: {error.strerror}{at}. "
            "Make it writable, or set DYNA_HOME to another folder"
        ) from None
