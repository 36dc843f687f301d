"""The report on an upload: every file and every message of it has a line, and counts in equal counts out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import OPTIONS, SAYS, WRITERS, Lab
from mcap.reader import make_reader
from mcap.records import Channel
from recordings import write_aloha, write_lerobot_v21, write_mcap, write_text

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.landing.file_fates import unread_files
from dyna_assets.landing.quarantine import find_landed
from dyna_assets.landing.recording import FileInfo, RecordingRef
from dyna_assets.landing.register import utc_now
from dyna_assets.landing.report import ReportRows, UploadReport, read_rows, upload_report
from dyna_assets.landing.sources import reader_of
from dyna_assets.landing.upload import commit_upload
from dyna_assets.steps.attempt import attempt
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import TABLES

NO_ROWS = ReportRows()


def account(topic: str, use: str = "role", **counts: Any) -> dict[str, Any]:
    """A row as the query gives it; by default nothing was made of the recording."""
    return {
        "episode_id": 1, "topic": topic, "kind": "vector", "encoding": "float32", "use": use, "role": "",
        "num_stated": 10, "num_read": None, "num_used": None, "num_outside": None, "num_surplus": None, **counts,
    }  # fmt: skip


def made(num_used: int, num_outside: int = 0, num_surplus: int = 0, **more: Any) -> dict[str, Any]:
    read = num_used + num_outside + num_surplus
    return {
        "num_read": read, "num_used": num_used, "num_outside": num_outside, "num_surplus": num_surplus, **more
    }  # fmt: skip


def of_topics(*accounts: dict[str, Any]) -> UploadReport:
    return upload_report({}, None, {}, (), (), ReportRows(accounts))


def fates(files: list[str], listed: list[str] | None = None, **more: Any) -> dict[str, tuple[str, str]]:
    found = upload_report(
        dict.fromkeys(files, FileInfo(3, 0)),
        listed,
        more.get("episodes", {}),
        more.get("metadata", ()),
        more.get("ignore", ()),
        NO_ROWS,
    )
    return {line.path: (line.fate, line.by) for line in found.files}


def test_every_file_has_the_first_fate_that_holds() -> None:
    found = fates(
        ["a.mcap", "b.mcap", "meta/info.json", "docs/x.md", "odd", "late"],
        ["a.mcap", "b.mcap", "meta/info.json", "docs/x.md", "odd", "gone"],
        episodes={1: ("ep1", ["a.mcap"]), 2: ("ep2", ["a.mcap", "b.mcap"])},
        metadata=("meta/*", "*.mcap"),
        ignore=("*.md",),
    )
    assert found == {
        "upload.json": ("marker", ""),
        "a.mcap": ("recording", "ep1, ep2"),
        "b.mcap": ("recording", "ep2"),
        "meta/info.json": ("metadata", "meta/*"),
        "docs/x.md": ("ignored", "*.md"),
        "odd": ("unread", ""),
        "late": ("unlisted", ""),
        "gone": ("missing", "upload.json"),
    }


def test_a_file_of_many_recordings_names_a_few_and_one_that_vanished_names_them_too() -> None:
    episodes = {number: (f"ep{number}", ["video.mp4"]) for number in range(1, 11)}
    assert fates(["video.mp4"], episodes=episodes)["video.mp4"] == ("recording", "ep1, ep2, ep3 and 7 more")
    assert fates([], episodes=episodes)["video.mp4"] == ("missing", "ep1, ep2, ep3")


def test_what_is_lost_of_files_is_a_problem_each_with_what_to_do() -> None:
    report = upload_report(
        dict.fromkeys(["odd", "late"], FileInfo(3, 0)), ["odd", "gone"], {}, (), (), NO_ROWS
    )
    assert [problem.split(";")[0] for problem in report.problems] == [
        "1 file is read by nobody",
        "1 file is not in upload.json, and so not read",
        "1 file is not there any more",
    ]


names = st.sampled_from(["a", "b", "meta/c", "d.md", "e/f.md"])


@given(
    st.sets(names),
    st.sets(names),
    st.sampled_from([(), ("meta/*",), ("*",)]),
    st.sampled_from([(), ("*.md",)]),
)
def test_registration_and_report_agree_on_what_nobody_reads(
    files: set[str], read: set[str], metadata: tuple[str, ...], ignore: tuple[str, ...]
) -> None:
    found = fates(sorted(files), episodes={1: ("ep", sorted(read & files))}, metadata=metadata, ignore=ignore)
    refs = [RecordingRef("ep", tuple(read & files))]
    assert unread_files(files, refs, metadata, ignore) == [
        path for path, (fate, _) in found.items() if fate == "unread"
    ]


def test_messages_in_equal_messages_out_over_all_recordings() -> None:
    report = of_topics(
        account("action", **made(7, 2, 1)),
        account("action", episode_id=2),
        account("log", "extra", **made(10)),
        account("index", "ignored"),
        account("index", "ignored", episode_id=2, **made(0)),
    )
    action, index, log = report.topics
    assert (action.num_recordings, action.num_in, action.num_used, action.num_unmade) == (2, 20, 7, 10)
    assert (index.num_in, index.num_left_out, log.num_used) == (20, 20, 10)
    assert report.problems == ()
    assert report.balance == (
        "50 messages in = 17 used + 2 outside the common time + 1 between two steps + 20 left out "
        "+ 10 in recordings without an episode"
    )


def test_a_recording_that_states_another_number_than_it_holds_does_not_balance() -> None:
    report = of_topics(account("action", **made(8)))
    assert "10 messages in is not 8 used" in report.balance
    assert report.problems == (
        "action: 10 messages came in, what became of them is said of 8: its recordings state another number than "
        "they hold",
    )


def test_video_is_counted_in_frames_which_messages_need_not_be() -> None:
    video = {"kind": "image", "encoding": "h264"}
    assert of_topics(account("/cam", **video, **made(12))).problems == ()
    assert of_topics(account("/cam", kind="image", encoding="jpeg", **made(12))).problems != ()
    assert of_topics(account("/cam", **video)).topics[0].num_in == 10


def test_an_unmapped_topic_is_a_problem_that_says_what_to_do() -> None:
    report = of_topics(account("/tf", "unmapped"), account("/log", "unmapped"))
    assert report.problems == (
        "no role, and neither extra nor ignored by the source's TOML: /log (10 messages), /tf (10 messages). "
        "Name them there, then reprocess the source",
    )


def test_a_topic_that_other_rows_used_otherwise_has_a_line_for_each_use() -> None:
    report = of_topics(account("/tf", "unmapped"), account("/tf", "ignored", episode_id=2))
    assert [(line.topic, line.use, line.num_in) for line in report.topics] == [
        ("/tf", "ignored", 10), ("/tf", "unmapped", 10)
    ]  # fmt: skip


def test_a_line_says_in_words_what_became_of_the_messages_of_its_topic() -> None:
    used, unknown, none = of_topics(
        account("a", **made(1200, 3), num_stated=1203), account("b", **made(8)), account("c", num_stated=0)
    ).topics
    assert used.became == "1,200 used, 3 outside the common time"
    assert unknown.became == "8 used, 2 not accounted for"
    assert none.became == "none"


def test_tasks_count_recordings_also_where_a_task_holds_for_a_part() -> None:
    texts = [
        {"key": "task", "text": "close"},
        {"key": "task", "text": "open"},
        {"key": "subtask", "text": "x"},
    ]
    recordings = [
        {"task": "open", "facts": "{}"},
        {"task": "open", "facts": json.dumps({"texts": texts})},
        {"task": "", "facts": "{}"},
    ]
    assert upload_report({}, None, {}, (), (), ReportRows(recordings=recordings)).tasks == {
        "open": 2,
        "close": 1,
    }


def test_what_readers_assumed_is_reported_with_the_number_of_recordings() -> None:
    noted = json.dumps({"notes": ["no attribute fps: took ALOHA's 50 Hz"]})
    recordings = [{"task": "", "facts": facts} for facts in (noted, noted, "{}", None)]
    report = upload_report({}, None, {}, (), (), ReportRows(recordings=recordings))
    assert report.notes == {"no attribute fps: took ALOHA's 50 Hz": 2}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    found = Warehouse(str(tmp_path / "tables"))
    found.create()
    return found


def report_of(lab: Lab, warehouse: Warehouse, *, until: str = "gate_after") -> UploadReport:
    """Register, run the steps, write their rows as a shard's run does, and report."""
    lab.register()
    (upload,) = lab.uploads()
    seq = 0
    for episode in lab.episodes():
        for step, result in lab.through(lab.row(episode.name), until).items():
            seq += 1
            for table, rows in result.rows.items():
                warehouse.append(TABLES[table], 0, seq, rows, run_id="r")
            stamp = {"episode_id": episode.id, "step": step, "status": result.status, "reason": result.reason}
            warehouse.append(TABLES["version_stamps"], 0, seq, [stamp], run_id="r")
    landed = find_landed(lab.source, lab.settings, upload, utc_now())
    listed = None if upload.marker is None else [file["path"] for file in upload.marker["files"]]
    episodes = lab.catalog.upload_episodes(upload.id)
    return upload_report(
        landed.files,
        listed,
        {row.id: (row.name, row.files) for row in episodes},
        reader_of(lab.source).metadata,
        lab.source.ignore,
        read_rows(warehouse, lab.catalog.upload_shards(upload.id), [row.id for row in episodes]),
    )


def test_of_a_whole_data_set_everything_is_accounted_for(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path
) -> None:
    root = write_lerobot_v21(tmp_path / "set", [40, 40])
    write_text(root / "README.md", "x")
    report = report_of(Lab.of(catalog, root, tmp_path / "lake"), warehouse)
    assert report.problems == ()
    assert {line.state for line in report.episodes} == {"made"}
    assert {line.fate for line in report.files} == {"recording", "metadata", "ignored"}
    assert report.tasks == {"stack the cups": 2}
    assert report.balance.startswith("480 messages in = 240 used + 0 outside")
    assert "240 left out" in report.balance


@pytest.mark.parametrize("kind", list(WRITERS))
def test_of_every_format_every_file_and_message_is_accounted_for(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    WRITERS[kind](tmp_path / "set")
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake", **OPTIONS.get(kind, {}))
    report = report_of(lab, warehouse)
    assert {line.state for line in report.episodes} == {"made"}, report.episodes
    assert report.problems == ()
    assert " messages in = " in report.balance
    (path,) = (tmp_path / "lake").rglob("*.mcap")
    with path.open("rb") as file:  # and what the account says is kept is in the file
        counts = {channel.topic: n for channel, n in extra_counts(file)}
    kept = {line.topic: line.num_used for line in report.topics if line.use == "extra" and line.num_used}
    assert {topic: counts.get(topic) for topic in kept} == kept


def extra_counts(file: IO[bytes]) -> list[tuple[Channel, int]]:
    """Channels of the group 'extra' with their messages."""
    summary = make_reader(file).get_summary()
    assert summary is not None and summary.statistics is not None
    counts = summary.statistics.channel_message_counts
    return [
        (channel, counts.get(channel.id, 0))
        for channel in summary.channels.values()
        if channel.metadata.get("group") == "extra"
    ]


def test_of_a_committed_upload_the_marker_and_its_files_are_accounted_for(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "set/ep.hdf5", 60)
    commit_upload(tmp_path / "set", **SAYS)
    report = report_of(Lab.of(catalog, tmp_path / "set", tmp_path / "lake"), warehouse)
    assert report.problems == ()
    assert [(line.path, line.fate) for line in report.files] == [
        ("upload.json", "marker"), ("ep.hdf5", "recording")
    ]  # fmt: skip


def test_the_recordings_own_task_is_kept_beside_the_markers(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path
) -> None:
    write_lerobot_v21(tmp_path / "set", [30])
    commit_upload(tmp_path / "set", **SAYS, task="sort")
    report = report_of(Lab.of(catalog, tmp_path / "set", tmp_path / "lake"), warehouse, until="recordings")
    assert report.tasks == {"sort": 1, "stack the cups": 1}


def test_a_new_topic_in_a_known_source_and_a_file_that_nobody_reads_are_problems(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path
) -> None:
    write_mcap(tmp_path / "set/a.mcap", 30)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake", extra=())
    write_text(tmp_path / "set/calibration.yaml", "x")
    report = report_of(lab, warehouse, until="gate_before")
    (upload,) = lab.uploads()
    assert upload.notes["reader"] == [
        "1 files are read by nobody, first calibration.yaml; name them under the source's 'ignore'"
    ]
    assert lab.looked[0].notes == [f"lab: .: {upload.notes['reader'][0]}"]
    nobody, unmapped = report.problems
    assert nobody.startswith("1 file is read by nobody") and "First: calibration.yaml" in nobody
    assert "/log (1 messages)" in unmapped
    assert {line.num_unmade for line in report.topics if line.use == "role"} != {0}


def test_rows_of_an_earlier_episode_do_not_stand_for_a_recording_that_was_probed_anew(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "set/ep.hdf5", 60)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    assert report_of(lab, warehouse).balance.endswith(" 0 in recordings without an episode")
    again = attempt("recordings", lab.row())
    warehouse.append(TABLES["accounts"], 0, 99, again.rows["accounts"], run_id="r")
    (episode,) = lab.episodes()
    rows = read_rows(warehouse, {0}, [episode.id])
    assert {row["num_used"] for row in rows.accounts} == {None}


def test_a_joint_topic_that_is_kept_whole_is_accounted_for_by_each_of_its_parts(
    catalog: Catalog, warehouse: Warehouse, tmp_path: Path
) -> None:
    write_mcap(tmp_path / "set/a.mcap", 30)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake", actions=(), extra=("/leader*", "/log"))
    report = report_of(lab, warehouse)
    assert report.problems == ()
    kept = {line.topic: (line.num_in, line.num_used) for line in report.topics if line.use == "extra"}
    assert kept == {
        "/leader/joint_states.position": (60, 60),
        "/leader/joint_states.velocity": (60, 60),
        "/leader/joint_states.effort": (60, 60),
        "/log": (1, 1),
    }
