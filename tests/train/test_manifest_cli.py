from __future__ import annotations

import json
import subprocess
import sys

import pytest
from small_corpus import build, build_manifest
from typer.testing import CliRunner

from dyna_train.cli import app
from dyna_train.errors import BadInput, ManifestError
from dyna_train.manifest import Manifest
from dyna_train.program import Exit, run_program


@pytest.fixture
def path(tmp_path):
    return build_manifest(tmp_path, lengths=(24, 17, 30))


def test_a_manifest_is_shown_with_its_rows_cameras_query_and_hash(path):
    shown = CliRunner().invoke(app, ["manifest", str(path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for text in [
        "71 at 10 Hz",
        "left 64x48, right 64x48",
        "select 1 where tag in ['a']",
        "episodes @ 3",
        Manifest.open(path).sha256,
    ]:
        assert text in shown.stdout
    assert "not verified" in shown.stdout


def test_json_holds_what_the_manifest_says_of_itself(path):
    shown = CliRunner().invoke(app, ["manifest", str(path), "--json"])
    assert json.loads(shown.stdout) | {
        "num_rows": 3,
        "num_steps": 71,
        "query": "select 1 where tag in ['a']",
    } == json.loads(shown.stdout)


def test_verify_reads_the_rows(path):
    assert (
        "(verified)"
        in CliRunner().invoke(app, ["manifest", str(path), "--verify"], env={"COLUMNS": "200"}).stdout
    )
    data = path.read_bytes()
    place = data.index((24).to_bytes(4, "little") + (17).to_bytes(4, "little"))
    path.write_bytes(data[:place] + b"\x19" + data[place + 1 :])
    assert CliRunner().invoke(app, ["manifest", str(path)]).exit_code == 0
    damaged = CliRunner().invoke(app, ["manifest", str(path), "--verify"])
    with pytest.raises(
        ManifestError, match=r"the rows have sha256 .* bytes changed after the manifest was written"
    ):
        raise damaged.exception


def test_an_error_is_one_message_without_a_traceback_and_exits_2(tmp_path):
    command = [sys.executable, "-m", "dyna_train.cli", "manifest", str(tmp_path / "[absent].arrow")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.FAILURE
    assert done.stderr.startswith("error: ") and "[absent].arrow: no such file" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_recipe_runs_from_the_command_line(tmp_path):
    corpus = build(tmp_path, lengths=(24, 17))
    command = [sys.executable, "-m", "dyna_train.cli", "recipe", str(corpus.manifest)]
    done = subprocess.run(
        [*command, "--steps", "2", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "out/summary.json").read_text())["steps"] == 2
    assert "loss " in done.stdout


def raising(error):
    def program():
        raise error

    return program


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BadInput("what [x] is wrong"), 2, "error: what [x] is wrong\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (ZeroDivisionError("oops"), 3, "ZeroDivisionError: oops"),
    ],
)
def test_a_program_ends_with_the_code_of_its_error(capsys, error, code, text):
    with pytest.raises(SystemExit, match=f"^{code}$"):
        run_program(raising(error))
    assert text in capsys.readouterr().err


def test_a_program_without_error_exits_0():
    with pytest.raises(SystemExit, match=r"^0$"):
        run_program(lambda: None)
