"""Texts of a data set become events on the clock of the steps, and keep when they were said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from recordings import change_info, feature, lerobot_info, still
from row_samples import row_of
from test_sources_lerobot_rows import DATA, data_set, language

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.steps.attempt import attempt
from dyna_train.episode.reader import Episode

MS = 1_000_000


def test_a_text_lies_at_its_step_where_the_reference_camera_was_late(tmp_path: Path) -> None:
    times_s = [0.1 * step + (0.01 if step == 8 else 0.0) for step in range(12)]
    stills = [{"bytes": still(step, "PNG"), "path": None} for step in range(12)]
    said = [language("reach", 0.0), language("lift", times_s[8])]
    root = data_set(tmp_path / "set", 12, language_persistent=[said] * 12, timestamp=times_s, wrist=stills)
    features: Any = lerobot_info("v2.1", 10)["features"]
    change_info(root, features={**features, "wrist": feature("image", [48, 64, 3])})
    profile = {
        "name": "lab",
        "landing": str(root),
        "reader": "lerobot_v21",
        "grid": {"rate_hz": 10.0, "reference": "wrist"},
        "cameras": [{"name": "wrist", "topic": "wrist"}],
        "states": [{"name": "arm", "topic": "observation.state", "units": "rad"}],
    }
    files = (DATA, "meta/info.json", "meta/episodes.jsonl", "meta/tasks.jsonl")
    about = {"recording_name": "episode_000000", "files": files, "upload_uri": str(root)}
    row = row_of(SourceProfile.model_validate(profile), tmp_path / "lake", **about)
    probed = attempt("recordings", row)
    row = replace(row, upstream={"recordings": probed.rows["recordings"][0]})
    made = attempt("episodes", row)
    assert (probed.reason, made.reason) == ("", "")
    with Episode.open(row.episode_uri(made.rows["episodes"][0]["content_hash"])) as episode:
        start_ns = episode.header.start_ns
        reach, lift = episode.events()
    assert (reach.name, reach.data["text"], reach.time_ns, reach.capture_ns) == (
        "subtask",
        "reach",
        start_ns,
        None,
    )
    assert (lift.data["text"], lift.time_ns) == ("lift", start_ns + 800 * MS)
    assert lift.capture_ns == start_ns + 810 * MS
