"""Run every benchmark in turn: python -m benchmarks [--json] [NAME ...].

Each runs in a process of its own, so that one's memory and caches are not the next one's.  With --json the
output is one array of reports.  Exit code: 0 all bars held, 1 a bar was missed, 2 a benchmark could not run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import BROKEN, OK

_NO_BENCHMARKS = {"harness"}


def find_benchmarks(folder: Path) -> list[str]:
    """Names of the benchmark modules in `folder`, sorted: all but the harness and underscored ones."""
    names = sorted(path.stem for path in folder.glob("*.py"))
    return [name for name in names if not name.startswith("_") and name not in _NO_BENCHMARKS]


def run_all(package: str, names: Sequence[str], *, as_json: bool) -> tuple[int, list[dict[str, Any]]]:
    """Run `package`.<name> for each name: the worst exit code, and with `as_json` the reports."""
    worst, reports = OK, []
    for name in names:
        command = [sys.executable, "-m", f"{package}.{name}", *(["--json"] if as_json else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE if as_json else None, text=True, check=False)
        code = done.returncode if done.returncode in (0, 1) else BROKEN
        if as_json and done.stdout:
            reports.append(json.loads(done.stdout))
        elif as_json:  # a module that cannot be imported exits with 1 as well, but prints no report
            code = BROKEN
        if code == BROKEN:
            print(f"{package}.{name} did not run to its end (exit code {done.returncode})", file=sys.stderr)
        worst = max(worst, code)
    return worst, reports


def main(package: str, folder: Path, argv: Sequence[str] | None = None) -> int:
    """The command line over the benchmarks in `folder`, importable as `package`."""
    known = find_benchmarks(folder)
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which to run; default all: {', '.join(known)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of tables")
    asked = parser.parse_args(argv)
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    code, reports = run_all(package, asked.names or known, as_json=asked.json)
    if asked.json:
        print(json.dumps(reports, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(main("benchmarks", Path(__file__).parent))
