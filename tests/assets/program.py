"""`dyna-assets` in the process of the test: the same arguments, messages and exit codes, without the start of one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dyna_assets.cli import main


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it said."""

    code: int
    output: str
    errors: str

    @property
    def message(self) -> str:
        """What stands on stderr, in one line."""
        return " ".join(self.errors.split())


@dataclass(frozen=True)
class Program:
    """Runs `dyna-assets` to its end."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, home: Path, *arguments: str) -> Ended:
        self.monkeypatch.setenv("DYNA_HOME", str(home))
        self.monkeypatch.setenv("COLUMNS", "200")
        self.monkeypatch.setattr(sys, "argv", ["dyna-assets", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        output, errors = self.capsys.readouterr()
        return Ended(int(end.value.code or 0), output, errors)
