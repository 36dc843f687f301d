"""The report on an upload, of recordings that were refused: each reason once, and what is unknown of them."""

from __future__ import annotations

from typing import Any

from dyna_assets.corpus import Rejection
from dyna_assets.landing.recording import FileInfo
from dyna_assets.landing.report import RefusedLine, ReportRows, UploadReport, upload_report
from dyna_assets.stamps import OF_ITS_UPLOAD

ROW = {
    "episode_id": 1, "topic": "/a", "kind": "vector", "encoding": "float32", "use": "role", "role": "",
    "num_stated": 10, "num_read": None, "num_used": None, "num_outside": None, "num_surplus": None,
}  # fmt: skip
"""What an earlier look at the recording found of its topic."""


def refusal(episode_id: int, step: str, reason: str, status: str = "rejected") -> Rejection:
    return Rejection(episode_id, "lab", f"ep{episode_id}", step, status, reason, run_id="r")


def of_recordings(num: int, *refusals: Rejection, **more: Any) -> UploadReport:
    """The report on so many recordings, ep1 and so on."""
    episodes = {number: (f"ep{number}", ["a"]) for number in range(1, num + 1)}
    rows = ReportRows(rejections=refusals, **more)
    return upload_report(dict.fromkeys("a", FileInfo(3, 0)), None, episodes, (), (), rows)


def test_recordings_say_how_far_they_came_and_the_refused_ones_each_reason_once() -> None:
    dark = "camera.dark: top: is dark; its cap is on (rejected below 24 levels)"
    flat = "camera.flat: top: is plain (rejected below 12 levels)"
    report = of_recordings(
        5,
        refusal(2, "gate_before", "time.gap: too long"),
        refusal(2, "episodes", "lab: ep2: time.overlap: none"),
        refusal(3, "gate_after", f"{dark}; {flat}"),
        refusal(4, "media", "no such codec", "error"),
        made=(1, 3, 4),
    )
    assert [(line.name, line.state) for line in report.episodes] == [
        ("ep1", "made"),
        ("ep2", "rejected in gate_before"),
        ("ep3", "rejected in gate_after"),
        ("ep4", "made"),
        ("ep5", "waiting"),
    ]
    assert report.refused[1].reasons == ("time.overlap: none",)  # its name stands beside it
    assert report.refused[2] == RefusedLine(3, "ep3", "gate_after", "rejected", (dark, flat))
    assert report.problems == ("3 of 5 recordings were refused or failed. First: ep2",)


def test_topics_are_unknown_of_a_recording_that_nobody_could_read() -> None:
    cut = "recording.readable: a.mcap: cut at byte 9. Upload it again"
    report = of_recordings(1, refusal(1, "recordings", cut))
    assert report.num_unreadable == 1 and report.topics == ()
    assert report.problems == (
        "1 of 1 recordings was refused or failed. First: ep1",
        "topics unknown of 1 recording that is not readable. First: ep1",
    )
    assert report.balance.endswith("without an episode; not counted: 1 recording that is not readable")
    read_before = of_recordings(1, refusal(1, "recordings", cut), accounts=[ROW])
    assert read_before.num_unreadable == 0 and "not counted" not in read_before.balance


def test_recordings_of_a_quarantined_upload_wait_and_do_not_repeat_its_reason() -> None:
    report = of_recordings(1, refusal(1, "recordings", f"{OF_ITS_UPLOAD}wrong sha256"))
    assert [line.state for line in report.episodes] == ["waiting"]
    assert (report.refused, report.problems) == ((), ())
