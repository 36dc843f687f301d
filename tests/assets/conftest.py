"""A real PostgreSQL for the tests of this folder, one server for all; and homes on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from path_house import House, KeptHouse, open_house
from program import Program
from sqlalchemy import NullPool, create_engine, make_url, text

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.models import Base
from dyna_assets.catalog.server import ensure_server, stop_server
from dyna_assets.home import Home


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that lives as long as the session."""
    home = Home.at(tmp_path_factory.mktemp("postgres"))
    url = ensure_server(home)
    # It is thrown away at the end: no reason to wait for the disk.
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("ALTER SYSTEM SET fsync = off"))
        connection.execute(text("SELECT pg_reload_conf()"))
    yield url
    stop_server(home)


@pytest.fixture(scope="session")
def new_database(postgres_server: str) -> Iterator[Callable[[], str]]:
    """A function that gives the URL of a new empty database."""
    engine = create_engine(postgres_server, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    numbers = itertools.count()

    def make() -> str:
        name = f"test_{next(numbers)}"
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        return make_url(postgres_server).set(database=name).render_as_string(hide_password=False)

    yield make
    engine.dispose()


@pytest.fixture
def postgres_url(new_database: Callable[[], str]) -> str:
    """URL of an empty database of this test's own."""
    return new_database()


@pytest.fixture(scope="session")
def catalog_url(new_database: Callable[[], str]) -> str:
    """URL of a database with the catalog's tables."""
    url = new_database()
    Catalog.open(url).close()
    return url


@pytest.fixture
def empty_catalog_url(catalog_url: str) -> str:
    """The same, with nothing in them: a database of its own for each test takes three times as long."""
    engine = create_engine(catalog_url, poolclass=NullPool)
    with engine.begin() as connection:
        names = ", ".join(str(table) for table in Base.metadata.tables.values())
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    return catalog_url


@pytest.fixture
def catalog(empty_catalog_url: str) -> Iterator[Catalog]:
    """An open catalog with nothing in it."""
    with Catalog.open(empty_catalog_url) as catalog:
        yield catalog


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """`dyna-assets`, without a process of its own."""
    return Program(monkeypatch, capsys)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new home, prepared; without a server until one is asked for."""
    return Home.at(tmp_path / "home").prepare()


@pytest.fixture
def house(home: Home, empty_catalog_url: str) -> Iterator[House]:
    """A whole DYNA_HOME on real components."""
    with open_house(home, empty_catalog_url) as house:
        yield house


@pytest.fixture(scope="session")
def kept_house(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]) -> KeptHouse:
    """A house through which three simulated uploads have gone, the third of a black camera: rejected."""
    folder = tmp_path_factory.mktemp("kept")
    with open_house(Home.at(folder / "home").prepare(), new_database()) as house:
        house.simulate(3, seconds=2.5, faults=["black_camera"])
        house.run()
        return KeptHouse.of(house, folder / "kept")


@pytest.fixture
def full_house(kept_house: KeptHouse) -> Iterator[House]:
    """The kept house, this test's own: two episodes that pass (1, 2), one that does not (3)."""
    with kept_house.opened() as house:
        yield house
