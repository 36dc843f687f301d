"""The pages under docs/ keep up with the code: their tables, commands, TOML and files are those that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import typer

from dyna_assets.cli import app as assets_app
from dyna_assets.derive import DERIVED
from dyna_assets.labels import LABELLERS
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.sources import READERS
from dyna_assets.quality import CHECKS
from dyna_assets.quality.policy import Policy
from dyna_train.config import parse_config

ROOT = Path(__file__).resolve().parents[2]
QUALITY = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "docs" / "sources_and_time.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def table_below(text: str, head: str) -> list[list[str]]:
    """The cells of the rows of the table with this first line."""
    _, found, rest = text.partition(f"{head}\n")
    assert found, head
    lines = re.match(r"(?:\|.*\n)+", rest)
    assert lines is not None, head
    rows = [line.strip("|").split("|") for line in lines.group().splitlines()[1:]]
    return [[cell.strip() for cell in row] for row in rows]


def names_in(text: str, head: str) -> list[str]:
    """What stands in backticks in the first column."""
    return [name for row in table_below(text, head) for name in re.findall(r"`([^`]+)`", row[0])]


def blocks(text: str) -> list[str]:
    return re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("gate", ["before", "after"])
def test_the_table_of_checks_is_the_registry(gate: str) -> None:
    head = "| check | unit | worse | warn | reject | meaning |"
    documented = table_below(QUALITY.partition(f"**Gate {gate}**\n")[2].lstrip(), head)
    registered = [
        [
            f"`{rule.name}`",
            rule.unit,
            rule.worse,
            *("" if limit is None else f"{limit:g}" for limit in (rule.limits.warn, rule.limits.reject)),
            rule.says,
        ]
        for rule in CHECKS.values()
        if rule.gate == gate
    ]
    assert documented == registered


def test_readers_derived_functions_and_labellers_of_the_docs_are_those_there_are() -> None:
    assert set(names_in(SOURCES, "| reader | times | options | notes |")) == set(READERS)
    assert names_in(SOURCES, "| function | of | gives | options |") == list(DERIVED)
    assert set(names_in(QUALITY, "| labeller | gives |")) == set(LABELLERS)


@pytest.mark.parametrize("text", [SOURCES, README], ids=["sources_and_time.md", "README.md"])
def test_the_source_block_is_a_valid_source(text: str) -> None:
    (block,) = [block for block in blocks(text) if "[[cameras]]" in block]
    parse_config(SourceProfile, tomllib.loads(block), where="docs")


def test_the_reader_options_block_configures_the_reader() -> None:
    (block,) = [block for block in blocks(SOURCES) if block.startswith("[reader_options]")]
    options = tomllib.loads(block)["reader_options"]
    assert READERS["rlds"].configured(options, where="docs").options == options


def test_the_policy_block_is_a_valid_policy() -> None:
    (block,) = blocks(QUALITY)
    parse_config(Policy, tomllib.loads(block), where="docs")


@pytest.mark.parametrize(
    "line", sorted(set(re.findall(r"(?<![\w/])dyna-assets [^\n`#]*", QUALITY + SOURCES)))
)
def test_every_command_line_of_the_docs_names_a_command_and_options_that_exist(line: str) -> None:
    command, words = typer.main.get_command(assets_app), line.split()[1:]
    while hasattr(command, "commands"):
        assert words and words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    options = {name for param in command.params for name in param.opts}
    assert {word for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_files_and_pages_that_the_docs_name_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:dyna_assets|dyna_train|benchmarks)/[\w/.]*)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([\w./]+\.md)\)", text):
        assert (page.parent / name).exists(), name
