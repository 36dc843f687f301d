"""Step `media`: what it makes of an episode, how large, where it lies, and what a damaged file costs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import pytest
from page_samples import CAMERAS, NUM_STEPS, RATE_HZ, START_NS, header, near, noise, trace, write_episode
from PIL import Image
from row_samples import row_of

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.look.badge import LOOKS
from dyna_assets.look.media_kinds import KINDS, media_path, media_versions
from dyna_assets.look.sheet import MAX_BYTES
from dyna_assets.quality.evidence import evidence_row
from dyna_assets.quality.policy import Policy
from dyna_assets.quality.registry import Limits, Measured
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.media import PAGE_BYTES, THUMBNAIL_BYTES, make_media, page_of
from dyna_train.episode.address import episode_path
from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import CorruptEpisode

HASH = "0123456789abcdef" * 4
SOURCE = SourceProfile.model_validate(
    {
        "name": "lab",
        "landing": "landing",
        "reader": "mcap",
        "grid": {"rate_hz": RATE_HZ},
        "cameras": [{"name": camera.name, "topic": f"/{camera.name}"} for camera in CAMERAS],
    }
)


def upstream(level: float = 200.0, cameras=CAMERAS) -> dict[str, Any]:
    """What the step is given of an episode whose wrist camera shows so much light."""
    dark = {"camera.dark": [Measured("wrist", level, "wrist is dark", ((0.5, 1.0),))]}
    about = {"start_ns": START_NS, "duration_s": 2.0, "robot": "bimanual", "task": "fold", "shard": 12}
    return {
        "recordings": {**about, "success": True, "facts": "{}", "raw_bytes": 5},
        "episodes": {
            **about,
            "content_hash": HASH,
            "size_bytes": 9,
            "num_steps": NUM_STEPS,
            "valid_starts": [0],
            "valid_ends": [NUM_STEPS],
        },
        "traces": [
            {"camera": camera.name, "content_hash": HASH, "trace": trace().to_bytes()} for camera in cameras
        ],
        "qc_evidence": [evidence_row(17, "lab", "before", {}), evidence_row(17, "lab", "after", dark)],
    }


@pytest.fixture
def row(tmp_path):
    """A row whose episode file lies in its lake."""
    write_episode(tmp_path / "lake" / episode_path("shard-000012", 17, HASH))
    return row_of(SOURCE, tmp_path / "lake", episode_id=17, upstream=upstream())


def media_files(lake: str) -> list[str]:
    return sorted(str(path.relative_to(lake)) for path in Path(lake, "media").rglob("*") if path.is_file())


def test_every_kind_lies_in_the_lake_as_its_row_says(row):
    result = make_media(row)
    rows = {made["kind"]: made for made in result.rows["media"]}
    assert result.status == "ok" and set(rows) == set(KINDS)
    for kind, made in rows.items():
        assert (made["episode_id"], made["content_hash"]) == (17, HASH)
        assert made["path"] == media_path("shard-000012", 17, HASH, kind)
        assert Path(row.settings.lake, made["path"]).stat().st_size == made["size_bytes"] > 0
    assert media_files(row.settings.lake) == sorted(made["path"] for made in rows.values())
    assert rows["page"]["path"] == "media/shard-000012/17-0123456789abcdef/page-2.png"


def test_pictures_keep_their_sizes_and_formats(row):
    rows = {made["kind"]: made for made in make_media(row).rows["media"]}
    assert rows["thumbnail"]["size_bytes"] <= THUMBNAIL_BYTES and rows["page"]["size_bytes"] <= PAGE_BYTES
    for kind, form, width in (("thumbnail", "JPEG", 320), ("sheet", "JPEG", 876), ("page", "PNG", 1440)):
        with Image.open(Path(row.settings.lake, rows[kind]["path"])) as picture:
            assert (picture.format, picture.width) == (form, width)
    with av.open(str(Path(row.settings.lake, rows["preview"]["path"]))) as film:
        (stream,) = film.streams.video
        assert stream.codec_context.name == "h264" and stream.width == 320


def test_a_noisy_episode_of_many_cameras_keeps_the_limits(tmp_path):
    cameras = [CameraTrack(f"camera_{number}", 160, 120) for number in range(9)]
    path = tmp_path / "lake" / episode_path("shard-000012", 17, HASH)
    write_episode(path, header(cameras, (), num_steps=7), paint=noise)
    noisy = row_of(SOURCE, tmp_path / "lake", episode_id=17, upstream=upstream(cameras=()))
    sizes = {made["kind"]: made["size_bytes"] for made in make_media(noisy).rows["media"]}
    assert (
        sizes["thumbnail"] <= THUMBNAIL_BYTES and sizes["page"] <= PAGE_BYTES and sizes["sheet"] <= MAX_BYTES
    )


@pytest.mark.parametrize(("level", "outcome"), [(200.0, "pass"), (3.0, "reject")])
def test_the_page_shows_the_verdict_over_the_evidence_that_is_given(row, level, outcome):
    judged = replace(row, upstream=upstream(level))
    assert page_of(judged).outcome == outcome
    page = next(made for made in make_media(judged).rows["media"] if made["kind"] == "page")
    with Image.open(Path(row.settings.lake, page["path"])) as picture:
        assert near(picture.convert("RGB"), (16 + 60, 16 + 4), LOOKS[outcome].ground, far=10)


def test_the_policy_of_the_row_judges(row):
    mild = Policy(name="mild", version=2, checks={"camera.dark": Limits(warn=10.0)})
    facts = page_of(replace(row, upstream=upstream(3.0), policy=mild))
    assert facts.outcome == "warn" and facts.gates[1].policy == "mild@2"
    assert facts.findings[0].limit == 10.0


def test_media_made_again_replace_the_old_ones_and_leave_nothing_else(row):
    first = make_media(row)
    second = make_media(row)
    assert [made["path"] for made in first.rows["media"]] == [made["path"] for made in second.rows["media"]]
    assert len(media_files(row.settings.lake)) == len(KINDS)


def test_a_damaged_file_makes_no_medium_at_all(row):
    path = Path(row.settings.lake, episode_path("shard-000012", 17, HASH))
    data = bytearray(path.read_bytes())
    for place in range(0, len(data) // 2, 100):
        data[place] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptEpisode, match="fetch the file again"):
        make_media(row)
    assert media_files(row.settings.lake) == []


def test_where_the_lake_refuses_the_second_medium_no_row_names_the_first_and_a_retry_makes_all(row):
    second = Path(row.settings.lake, media_path("shard-000012", 17, HASH, list(KINDS)[1]))
    second.mkdir(parents=True)
    result = attempt("media", row)
    assert (result.status, dict(result.rows)) == ("error", {})
    assert "a folder; name a file to write" in result.reason
    assert len(media_files(row.settings.lake)) == 1  # whole, under the name that the retry gives it again
    second.rmdir()
    made = attempt("media", row).rows["media"]
    assert media_files(row.settings.lake) == sorted(one["path"] for one in made) and len(made) == len(KINDS)


def test_an_episode_without_cameras_has_media_too(tmp_path):
    write_episode(tmp_path / "lake" / episode_path("shard-000012", 17, HASH), header(cameras=()))
    row = row_of(SOURCE, tmp_path / "lake", episode_id=17, upstream=upstream(cameras=()))
    rows = make_media(row).rows["media"]
    assert {made["kind"] for made in rows} == set(KINDS)
    thumbnail = next(made for made in rows if made["kind"] == "thumbnail")
    assert Image.open(io.BytesIO(Path(tmp_path, "lake", thumbnail["path"]).read_bytes())).width == 320


def test_a_version_stands_in_the_name_and_in_the_stamp():
    assert media_versions() == {"thumbnail": 1, "sheet": 1, "preview": 1, "page": 2}
    assert media_path("shard-000012", 17, HASH, "preview").endswith("/preview-1.mp4")
