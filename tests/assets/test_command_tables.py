"""What commands print on a narrow terminal: no number cut, no name broken, no text a letter wide."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from dyna_assets.commands.labels import drift_row
from dyna_assets.commands.shared import print_rows
from dyna_assets.commands.uploads import file_rows, recording_rows, topic_rows
from dyna_assets.labels.drift import Compared, Session
from dyna_assets.landing.file_fates import FileLine
from dyna_assets.landing.report import EpisodeLine, TopicLine, UploadReport

WIDTH = 80
LONG = (
    "the file ends at byte 51,239 without the closing MCAP magic: it was cut while being recorded or uploaded "
    * 3
)


def printed(rows: list[dict[str, Any]], width: int = WIDTH) -> list[str]:
    """The lines of the rows on a terminal of this width, which none may leave."""
    out = io.StringIO()
    print_rows(rows, False, title="rows", console=Console(file=out, width=width))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(cell_len, lines)) <= width
    return lines


def is_table(lines: list[str], rows: list[dict[str, Any]]) -> bool:
    """Whether all headers stand in one line."""
    return all(key.replace("_", " ") in lines[1] for key in rows[0])


def test_a_table_has_its_numbers_on_the_right_and_wraps_its_last_column_only() -> None:
    rows: list[dict[str, Any]] = [
        {"bytes": "1,234", "checked of all": "1 of 20", "name": "up/rec", "reason": LONG[:100]},
        {"bytes": "5", "checked of all": "10 of 20", "name": "b", "reason": "[bold]"},
    ]
    assert printed(rows)[1:6] == [
        "bytes  checked of all  name    reason",
        "1,234         1 of 20  up/rec  the file ends at byte 51,239 without the closing",
        "                               MCAP magic: it was cut while being recorded or",
        "                               uplo",
        "    5        10 of 20  b       [bold]",
    ]


def test_where_a_text_would_need_many_lines_each_row_is_a_block_without_what_is_empty() -> None:
    rows: list[dict[str, Any]] = [
        {"episode": "7", "subject": "", "reason": ["first", LONG[:90]]},
        {"episode": "8", "subject": "a", "reason": LONG},
    ]
    assert printed(rows)[:6] == [
        "rows",
        "episode  7",
        "reason   first",
        "         the file ends at byte 51,239 without the closing MCAP magic: it was cut",
        "         while being record",
        "",
    ]
    assert is_table(printed(rows, 250), rows)


def test_no_rows_are_said_to_be_none_and_json_keeps_the_rows_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed([]) == ["rows: none"]
    print_rows([{"num_x": 1234, "y": None}], True, title="rows")
    assert json.loads(capsys.readouterr().out) == {"rows": [{"num_x": 1234, "y": None}]}


numbers = st.integers(0, 10**12).map("{:,}".format)
texts = st.text("abc/_ é日", max_size=200)


@given(st.lists(st.tuples(st.text("ab/-", max_size=40), numbers, numbers, texts), min_size=1, max_size=4))
@example([("", "0", "10,000,000", "_" * 23 + "日日"), ("a" * 23, "100,000,000,000", "0", "")])
def test_no_number_and_no_name_is_ever_cut_or_broken(cells: list[tuple[str, str, str, str]]) -> None:
    rows = [dict(zip(("name", "in", "num_out", "text"), row, strict=True)) for row in cells]
    for asked in (rows, [dict(reversed(row.items())) for row in rows]):
        lines = printed(asked)
        for name, *counts, _ in cells:
            assert any(name in line for line in lines)
            assert all(any(count in line.split() for line in lines) for count in counts)


PATH = "data/chunk-000/observation.images.cam_high/episode_000000.parquet"
REPORT = UploadReport(
    files=tuple(FileLine(PATH, 123_456_789_012, fate, PATH) for fate in ("recording", "metadata", "missing")),
    episodes=tuple(
        EpisodeLine(1_234_567_890_123, f"some_upload/{PATH}", state) for state in ("made", "rejected in gate_before")
    ),
    refused=(),
    num_unreadable=0,
    tasks={},
    notes={},
    topics=tuple(
        TopicLine(
            "/left_arm/joint_states.position", "vector", "float64", use, role, 9, 12_345_678, *counts, num_left_out=0,
            num_unmade=7,
        )
        for use, role, counts in (
            ("role", "state left_arm_position", (12_345_600, 60, 11)), ("unmapped", "", (0, 0, 0)),
        )
    ),
    problems=(),
)  # fmt: skip


def test_the_tables_of_an_upload_are_tables_on_a_narrow_terminal() -> None:
    for rows in (file_rows(REPORT), recording_rows(REPORT), topic_rows(REPORT)):
        lines = printed(rows)
        assert is_table(lines, rows), lines
    assert "12,345,600 used, 60 outside the common time, 11" in " ".join(
        " ".join(printed(topic_rows(REPORT))).split()
    )


def test_the_table_of_drift_is_a_table_on_a_narrow_terminal() -> None:
    session = Session("bimanual-3", "action/left_arm.waist", "lag", "ms", "2023-11-21", 123.4, 3.21, 1234)
    rows = [drift_row(Compared(session, 99.5, z, is_alarm)) for z, is_alarm in ((-12.34, True), (0.1, False))]
    lines = printed(rows)
    assert is_table(lines, rows)
    assert lines[2].split()[:8] == ["-12.3", "alarm", "123", "±", "3.21", "ms", "99.5", "1,234"]
