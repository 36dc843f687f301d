"""A whole DYNA_HOME for a test: sources, landing folders, and runs of the real jobs on real components."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
from sqlalchemy import Connection, NullPool, create_engine, make_url, text

from dyna_assets.assets.jobs import PROFILE_JOBS
from dyna_assets.assets.landing import landing_sensor
from dyna_assets.assets.resources import WorkspaceResource, opened
from dyna_assets.curation.curate import Curated, CurationSpec, curate_into_lake
from dyna_assets.definitions import build
from dyna_assets.describe import add_source
from dyna_assets.home import Home
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.settings import Settings
from dyna_assets.simulate import record_uploads
from dyna_assets.worker import Drained, drain
from dyna_assets.workspace import Workspace


@dataclass
class House:
    """An open workspace with the definitions and the Dagster instance that run on it."""

    workspace: Workspace
    definitions: dg.Definitions
    instance: dg.DagsterInstance

    @property
    def landing(self) -> Path:
        return self.workspace.home.landing

    def simulate(self, num: int, *, source: str = "sim", **options: Any) -> SourceProfile:
        """Record simulated uploads (1 s, 96x128 unless said) into a source of their own."""
        record_uploads(
            self.landing / source, num, source=source, **{"seconds": 1.0, "size": (96, 128), **options}
        )
        return self.add(source, self.landing / source)

    def add(self, name: str, landing: Path | str) -> SourceProfile:
        return add_source(self.workspace, name, str(landing))

    def run(self, profile: str = "ingest_online") -> Drained:
        """One pass of the worker; a failed run fails the test."""
        done = drain(self.workspace, self.instance, self.definitions, profile)
        assert not done.failed, done.failed
        return done

    def rows(self, table: str, shard: int = 0, key: str = "") -> list[dict[str, Any]]:
        return self.workspace.warehouse.current(table, shard, key=key)

    def stamps(self, shard: int = 0) -> dict[tuple[int, str], dict[str, Any]]:
        """(episode, step) -> its current stamp."""
        rows = self.rows("version_stamps", shard)
        return {(row["episode_id"], row["step"]): row for row in rows}

    def verdicts(self, level: str, shard: int = 0) -> dict[int, set[str]]:
        """episode -> checks with that verdict."""
        found: dict[int, set[str]] = {}
        for row in self.rows("verdicts", shard):
            if checks := row[{"warn": "warned", "reject": "rejected"}[level]]:
                found.setdefault(row["episode_id"], set()).update(checks)
        return found

    def objects(self) -> dict[str, int]:
        """Every episode file by path, with the time it was written, in ns."""
        root = Path(self.workspace.lake) / "episodes"
        return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*.mcap")}

    def curate(self, name: str = "test", **spec: Any) -> Curated:
        with duckdb.connect() as connection:
            asked = CurationSpec(name=name, **spec)
            return curate_into_lake(asked, self.workspace.warehouse, connection, self.workspace.settings)

    def edit_source(self, name: str, old: str, new: str) -> None:
        """Change a source's TOML as a person would."""
        path = self.workspace.home.sources / f"{name}.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@contextmanager
def open_house(
    home: Home, database_url: str, *, settings: Sequence[str] = ("workers = 1",)
) -> Iterator[House]:
    """A house on a fresh database; Dagster keeps its own state in memory."""
    lines = [f"database_url = {json.dumps(database_url)}", *settings]
    home.settings.write_text("\n".join(lines) + "\n")
    workspace = opened(str(home.path), Settings.load(home).s3)
    with dg.DagsterInstance.ephemeral(settings={"python_logs": {"python_log_level": "WARNING"}}) as instance:
        yield House(workspace, build(home), instance)
    workspace.catalog.close()


def tick(house: House, cursor: str | None = None) -> dg.SensorResult:
    """One evaluation of the landing sensor."""
    sensor = landing_sensor(PROFILE_JOBS["ingest_online"])
    resource = house.definitions.resources["workspace"]
    assert isinstance(resource, WorkspaceResource)
    with dg.build_sensor_context(
        instance=house.instance, cursor=cursor, resources={"workspace": resource}
    ) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


@contextmanager
def again_on(house: House) -> Iterator[House]:
    """The same house after its settings changed, as another process would open it."""
    home = house.workspace.home
    workspace = opened(str(home.path), Settings.load(home).s3)
    yield House(workspace, build(home), house.instance)
    workspace.catalog.close()


@dataclass(frozen=True)
class KeptHouse:
    """A house as it was once, to come back to. home: where it lies; kept: a copy of its folder.

    Catalog and settings hold paths and the address of the database, so folder and database are put back
    under the names they had.
    """

    home: Home
    kept: Path
    database_url: str

    @classmethod
    def of(cls, house: House, kept: Path) -> KeptHouse:
        """Keep what the house is now; it is closed."""
        house.workspace.catalog.close()
        home, url = house.workspace.home, house.workspace.database_url
        shutil.copytree(home.path, kept)
        with _server_of(url) as (server, name):
            server.execute(text(f"CREATE DATABASE {name}_kept TEMPLATE {name}"))
        return cls(home, kept, url)

    @contextmanager
    def opened(self) -> Iterator[House]:
        """The house as it was kept, whatever was done to it since."""
        shutil.rmtree(self.home.path)
        shutil.copytree(self.kept, self.home.path)
        with _server_of(self.database_url) as (server, name):
            server.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
            server.execute(text(f"CREATE DATABASE {name} TEMPLATE {name}_kept"))
        opened.cache_clear()
        with open_house(self.home, self.database_url) as house:
            yield house


@contextmanager
def _server_of(database_url: str) -> Iterator[tuple[Connection, str]]:
    """A connection to the server, not to the database, and the database's name."""
    url = make_url(database_url)
    engine = create_engine(url.set(database="postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection, str(url.database)
