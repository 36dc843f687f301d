"""The benchmark harness: figures against bars, timing with children, reports, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.__main__ import find_benchmarks, main, run_all
from benchmarks.harness import Figure, Report, cpu_seconds, measure, show

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
ROOT = Path(__file__).parents[2]

HOLDS = """
from benchmarks.harness import Figure, Report, main

def build():
    print("chatter that must not reach the report")
    figure = Figure("read_ms", 2.0, "ms", bar=5.0, limit=1.0, peers={"other": 9.0})
    return Report("holds", (figure,), notes=("a note",))

if __name__ == "__main__":
    main(build)
"""
MISSES = HOLDS.replace("holds", "misses").replace("bar=5.0", "bar=1.5")
CANNOT = """
from benchmarks.harness import main
from dyna_train.errors import BadInput

def build():
    raise BadInput("no recordings to time")

if __name__ == "__main__":
    main(build)
"""
CRASHES = CANNOT.replace("BadInput(", "ZeroDivisionError(")


def run_script(tmp_path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `text` as a benchmark in a process of its own, from a folder of its own."""
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    code = (
        f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); "
        f"sys.argv = {['script', *arguments]!r}; runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@given(value=FINITE, bar=FINITE)
def test_a_value_holds_its_bar_on_the_promised_side_and_on_the_bar_itself(value: float, bar: float) -> None:
    assert Figure("k", value, "s", bar=bar).ok is (value <= bar)
    assert Figure("k", value, "s", bar=bar, direction=">=").ok is (value >= bar)
    assert Figure("k", bar, "s", bar=bar).ok is True


def test_a_figure_without_a_bar_is_neither_ok_nor_missed_unless_it_says_so() -> None:
    assert Figure("k", 1.0, "s").ok is None
    assert Figure("k", 1.0, "s", ok=False).ok is False


@pytest.mark.parametrize(
    ("faulty", "match"),
    [
        ({"value": float("nan")}, r"figure k: value is nan; expected a finite number"),
        ({"value": 1.0, "peers": {"other": float("inf")}}, r"figure k: other is inf"),
        ({"value": 1.0, "bar": 2.0, "ok": True}, r"figure k: ok follows from the bar 2; give one of the two"),
        ({"value": 1.0, "direction": "<"}, r"figure k: direction '<'; expected '<=' or '>='"),
    ],
)
def test_a_figure_that_means_nothing_is_refused(faulty: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Figure("k", unit="s", **faulty)  # type: ignore[arg-type]


def test_two_figures_with_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match="report path: more than one figure is called read_ms"):
        Report("path", (Figure("read_ms", 1, "ms"), Figure("read_ms", 2, "ms")))


def test_measure_gives_the_medians_of_its_runs_and_leaves_out_the_warmup() -> None:
    naps_s = iter([0.4, 0.01, 0.3, 0.01])
    prepared: list[int] = []
    timing = measure(lambda: time.sleep(next(naps_s)), runs=3, prepare=lambda: prepared.append(1))
    assert len(timing.runs) == 3 and len(prepared) == 4
    assert timing.wall_s == sorted(run.wall_s for run in timing.runs)[1]
    assert timing.wall_s < 0.3
    assert timing.cpu_s < timing.wall_s


def test_measure_counts_the_cpu_of_child_processes() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    timing = measure(lambda: subprocess.run([sys.executable, "-c", burn], check=True), runs=1, warmup=0)
    assert timing.cpu_s >= 0.3
    assert cpu_seconds() >= 0.3


def test_measure_refuses_no_runs() -> None:
    with pytest.raises(ValueError, match="runs is 0; a median needs 1 or more"):
        measure(lambda: None, runs=0)


def test_the_json_report_has_the_keys_that_scripts_rely_on() -> None:
    figure = Figure("read_ms", 2.0, "ms", bar=5.0, limit=1.0, peers={"other": 9.0})
    data = json.loads(json.dumps(Report("path", (figure,)).as_json(), allow_nan=False))
    assert list(data) == ["name", "date", "machine", "figures"]
    assert data["figures"] == [
        {
            "key": "read_ms",
            "value": 2.0,
            "unit": "ms",
            "bar": 5.0,
            "limit": 1.0,
            "peers": {"other": 9.0},
            "ok": True,
        }
    ]
    assert {"cpu", "cores", "memory_bytes", "python", "load_average"} <= data["machine"].keys()
    assert data["machine"]["cores"] >= 1 and data["machine"]["memory_bytes"] > 1 << 20


def test_the_table_shows_value_bar_limit_peers_and_machine() -> None:
    screen = io.StringIO()
    figures = (
        Figure("read_ms", 12345.0, "ms", bar=5.0, limit=1.0, peers={"other": 9.5}),
        Figure("speedup", 4.0, "x", bar=3.0, direction=">="),
    )
    show(Report("path", figures, notes=("decode is the bottleneck",)), Console(width=160, file=screen))
    text = screen.getvalue()
    for expected in (
        "12,345",
        "<= 5",
        "MISSED",
        "other 9.5",
        ">= 3",
        "ok",
        "Python 3.",
        "decode is the bottleneck",
    ):
        assert expected in text


@pytest.mark.parametrize(("text", "code"), [(HOLDS, 0), (MISSES, 1), (CANNOT, 2), (CRASHES, 2)])
def test_the_exit_code_tells_held_missed_and_broken_apart(tmp_path: Path, text: str, code: int) -> None:
    assert run_script(tmp_path, text).returncode == code


def test_with_json_stdout_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    done = run_script(tmp_path, MISSES, "--json")
    assert json.loads(done.stdout)["figures"][0]["ok"] is False
    assert "chatter" in done.stderr


def test_a_benchmark_that_cannot_run_says_why_without_a_traceback(tmp_path: Path) -> None:
    done = run_script(tmp_path, CANNOT, "--json")
    assert done.stderr == "benchmark could not run: no recordings to time\n"
    assert done.stdout == ""


def make_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> Path:
    """An importable package 'figs' of benchmarks."""
    folder = tmp_path / "figs"
    folder.mkdir()
    for name, text in {"__init__": "", "harness": "", "_shared": "", **modules}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}", prepend=":")
    return folder


def test_all_benchmarks_are_found_but_not_the_harness_and_private_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_package(tmp_path, monkeypatch, storage=HOLDS, path=HOLDS)
    assert find_benchmarks(folder) == ["path", "storage"]


def test_running_all_goes_on_after_a_broken_one_and_gives_the_worst_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_package(tmp_path, monkeypatch, a=CANNOT, b=MISSES, c=HOLDS, d="import nothing_like_this")
    assert run_all("figs", ["b", "c"], as_json=False)[0] == 1
    code, reports = run_all("figs", ["a", "b", "c", "d"], as_json=True)
    assert code == 2
    assert [report["name"] for report in reports] == ["misses", "holds"]
    assert "figs.d did not run to its end" in capfd.readouterr().err


def test_all_reports_are_one_json_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_package(tmp_path, monkeypatch, b=HOLDS, c=MISSES)
    assert main("figs", folder, ["--json"]) == 1
    assert [report["name"] for report in json.loads(capsys.readouterr().out)] == ["holds", "misses"]


def test_an_unknown_benchmark_is_refused_with_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_package(tmp_path, monkeypatch, storage=HOLDS)
    with pytest.raises(SystemExit, match="2"):
        main("figs", folder, ["pathh"])
    assert "no benchmark called pathh; there are: storage" in capsys.readouterr().err
