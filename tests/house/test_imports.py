"""Who may import whom, and what a bare install can do without."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dyna_train", "dyna_assets", "dyna_cluster")
MAY_IMPORT = {
    "dyna_train": {"dyna_train"},
    "dyna_assets": {"dyna_assets", "dyna_train"},
    "dyna_cluster": {"dyna_cluster", "dyna_train"},
}
ABSENT = ("dagster", "sqlalchemy", "duckdb", "deltalake", "h5py", "alembic", "psycopg2", "s3fs")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_downwards(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        for name in imported(path)
        if name.split(".")[0] in PACKAGES and name.split(".")[0] not in MAY_IMPORT[package]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "folder",
    [
        "steps",
        "quality",
        "landing",
        "warehouse",
        "catalog",
        "curation",
        "simulate",
        "derive",
        "labels",
        "look",
    ],
)
def test_what_works_on_rows_knows_nothing_of_dagster(folder: str) -> None:
    users = [path.name for path in modules(f"dyna_assets/{folder}") if "dagster" in set(imported(path))]
    assert users == []


def run_without(absent: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process in which the `absent` modules cannot be imported."""
    blocker = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {absent!r}:\n"
        "            raise ModuleNotFoundError(f\"No module named '{name}'\", name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", blocker + code], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_every_module_of_the_training_side_imports_without_dagster_and_databases() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules("dyna_train")]
    names += [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules("dyna_cluster")]
    done = run_without(ABSENT, f"import importlib\nfor name in {names!r}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


def test_importing_dyna_train_loads_neither_torch_nor_av() -> None:
    done = run_without(
        (), "import dyna_train; print([m for m in ('torch', 'av', 'dagster', 'duckdb') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    code = "sys.argv = ['dyna-assets', 'status']\nfrom dyna_assets.cli import main\nmain()"
    done = run_without(("sqlalchemy",), code)
    assert done.returncode == 2
    assert "needs the module 'sqlalchemy'" in " ".join(done.stderr.split())
    assert "pip install 'dyna-data-engine[assets]'" in " ".join(done.stderr.split())


def test_command_help_loads_neither_dagster_nor_torch() -> None:
    for program in ("dyna_assets.cli", "dyna_train.cli", "dyna_cluster.cli"):
        code = (
            f"import contextlib\nsys.argv = ['x', '--help']\nfrom {program} import main\n"
            "with contextlib.suppress(SystemExit): main()\n"
            "print([m for m in ('torch', 'dagster') if m in sys.modules], file=sys.stderr)"
        )
        assert run_without((), code).stderr.strip().endswith("[]")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_is_longer_than_one_sitting_reads(package: str) -> None:
    long = {path.name: n for path in modules(package) if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_the_environment_is_read_only_at_the_edges() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if "os.environ" in path.read_text() or "os.getenv" in path.read_text()
    }
    assert readers <= {
        "dyna_assets/home.py",  # DYNA_HOME
        "dyna_train/world.py",  # torchrun's RANK and WORLD_SIZE
        "dyna_assets/catalog/server.py",  # what PostgreSQL's programs inherit
        "dyna_assets/ui.py",  # what Dagster's processes inherit
        "dyna_assets/demo/path.py",  # what the training inherits
        "dyna_cluster/launch.py",  # what the ranks inherit
    }
