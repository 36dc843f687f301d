"""The README keeps its promises: its code runs, its commands and files exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from dyna_assets.cli import app as assets_app
from dyna_assets.landing.profile import Encoding
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import MARKER, read_marker
from dyna_assets.profiles import load_profiles
from dyna_assets.settings import _Written
from dyna_cluster.cli import app as cluster_app
from dyna_train.cli import app as train_app
from dyna_train.config import parse_config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = {"dyna-assets": assets_app, "dyna-train": train_app, "dyna-cluster": cluster_app}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands(app: typer.Typer, prefix: str) -> dict[str, list[str]]:
    """Every command of a program with its options."""
    found = {}
    command = typer.main.get_command(app)
    groups = [(prefix, command)]
    while groups:
        name, group = groups.pop()
        for sub, inner in getattr(group, "commands", {}).items():
            if hasattr(inner, "commands"):
                groups.append((f"{name} {sub}", inner))
            else:
                found[f"{name} {sub}"] = [option for param in inner.params for option in param.opts]
    return found


KNOWN = {
    name: options for program, app in PROGRAMS.items() for name, options in commands(app, program).items()
}


@pytest.mark.parametrize("command", KNOWN)
def test_every_command_has_help_that_reads_as_a_sentence(command: str) -> None:
    program, *path = command.split()
    group = typer.main.get_command(PROGRAMS[program])
    for part in path:
        group = group.commands[part]  # type: ignore[attr-defined]
    assert group.help is not None
    assert re.match(r"[A-Z].*\.$", group.help.splitlines()[0]), command


@pytest.mark.parametrize("line", sorted(set(re.findall(r"dyna-(?:assets|train|cluster)[^\n`]*", README))))
def test_every_command_line_of_the_readme_names_a_command_and_options_that_exist(line: str) -> None:
    command = next((name for name in KNOWN if line.startswith(name)), None)
    assert command is not None, line
    before_the_job = line.split(" -- ")[0]
    unknown = set(re.findall(r"(?<!\S)--[a-z-]+", before_the_job)) - set(KNOWN[command])
    assert not unknown, (line, unknown)


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets


def test_files_that_the_readme_names_exist() -> None:
    for name in re.findall(r"`((?:dyna_|benchmarks)[a-z_/{},]*\.?[A-Za-z]*)`", README):
        head, _, rest = name.partition("{")
        names = (
            [head + part + rest.partition("}")[2] for part in rest.partition("}")[0].split(",")]
            if rest
            else [name]
        )
        for path in names:
            assert (ROOT / path).exists() or path.endswith("my_format.py"), path


def test_jobs_of_the_readme_are_the_profiles() -> None:
    assert set(re.findall(r"^\| `([a-z_]+)` \|", README, flags=re.MULTILINE)) == set(load_profiles())


def test_the_configuration_block_is_valid() -> None:
    (block,) = [block for block in blocks("toml") if "database_url" in block]
    parse_config(_Written, tomllib.loads(block), where="README")


def test_the_encoding_block_of_a_source_is_valid() -> None:
    (block,) = [block for block in blocks("toml") if "[encoding]" in block]
    parse_config(Encoding, tomllib.loads(block)["encoding"], where="README")


def test_the_loader_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "train"))
    from small_corpus import build

    (block,) = [block for block in blocks("python") if "DataLoader" in block]
    manifest = build(tmp_path, lengths=[30, 40]).manifest
    program = tmp_path / "example.py"
    program.write_text(block.replace('"manifest.arrow"', repr(str(manifest))))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch.Size([8, ")


def test_the_episode_block_runs(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "train"))
    from episode_samples import write_painted

    write_painted(tmp_path / "episode.mcap", 40)
    (block,) = [block for block in blocks("python") if "Episode.open" in block]
    program = tmp_path / "example.py"
    program.write_text(block.replace('"episode.mcap"', repr(str(tmp_path / "episode.mcap"))))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "ReadCounters(requests=" in done.stdout


def test_the_commit_block_commits_an_upload(tmp_path: Path) -> None:
    (block,) = [block for block in blocks("python") if "commit_upload" in block]
    (tmp_path / "recording.mcap").write_bytes(b"recording")
    code = block.replace('"/landing/lab1/2026-11-29-0001"', repr(str(tmp_path)))
    exec(compile(code, "README", "exec"), {})
    assert (tmp_path / MARKER).exists()
    assert read_marker(Folder.of(tmp_path)).source == "lab1"
