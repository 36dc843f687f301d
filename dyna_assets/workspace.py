"""Everything that belongs to one DYNA_HOME, opened: settings, catalog, warehouse, sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.server import ensure_server
from dyna_assets.errors import SetupError
from dyna_assets.home import Home
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.register import Registration, register_landing, utc_now
from dyna_assets.landing.sources import READERS
from dyna_assets.settings import S3Settings, Settings
from dyna_assets.stamps import all_versions
from dyna_assets.warehouse.store import Warehouse
from dyna_train.config import load_config
from dyna_train.errors import ConfigError


@dataclass(frozen=True)
class Workspace:
    """An open DYNA_HOME. `open` starts the database if need be and creates missing tables."""

    home: Home
    settings: Settings
    database_url: str
    catalog: Catalog
    warehouse: Warehouse

    @classmethod
    def open(cls, home: Home, s3: S3Settings | None = None) -> Workspace:
        """Open `home`; `s3` stands in for the store of its settings.

        Raises SetupError or ConfigError saying what is wrong with this machine or a file.
        """
        home.prepare()
        settings = Settings.load(home)
        if s3 is not None:
            settings = settings.model_copy(update={"s3": s3})
        url = settings.database_url or ensure_server(home)
        lake = settings.lake
        warehouse = Warehouse(f"{lake}/tables", settings.s3.delta_options(), settings.storage_options(lake))
        try:
            warehouse.create()
        except (DeltaError, OSError) as error:
            raise SetupError(
                f"lake {lake}: its tables cannot be created or opened: {error}. "
                f"Check 'lake' and [s3] in {home.settings}"
            ) from None
        return cls(home, settings, url, Catalog.open(url), warehouse)

    @property
    def lake(self) -> str:
        """Folder or URL under which episodes, tables and manifests lie."""
        return self.settings.lake

    def sources(self) -> Mapping[str, SourceProfile]:
        """The source profiles in <home>/sources, by name; read anew at each call.

        Raises ConfigError for a file that is wrong, or whose name is not its source's.
        """
        found = {}
        for path in sorted(self.home.sources.glob("*.toml")):
            source = load_config(SourceProfile, path)
            if source.name != path.stem:
                raise ConfigError(
                    f"{path}: name = '{source.name}', expected '{path.stem}' as the file is called"
                )
            if source.reader not in READERS:
                raise ConfigError(f"{path}: reader = '{source.reader}', expected one of {', '.join(READERS)}")
            found[source.name] = source
        return found

    def source(self, name: str) -> SourceProfile:
        """One source profile. Raises ConfigError naming those there are."""
        sources = self.sources()
        if name not in sources:
            there = ", ".join(sources) or "none yet"
            raise ConfigError(f"no source '{name}' in {self.home.sources}; sources there: {there}")
        return sources[name]

    def register_landed(self, seen: str = "") -> Registration:
        """Look at every source's landing folder once and register what is new; see `register_landing`."""
        return register_landing(
            self.catalog, self.sources(), self.settings, versions=all_versions(), now=utc_now(), seen=seen
        )
