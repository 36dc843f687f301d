"""Quarantine: what is listed and explained, what a person may overrule, and what happens then."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from landing_bench import SAYS, Bench
from recordings import write_aloha, write_mcap

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.quarantine import RELEASES, SINCE
from dyna_assets.catalog.rows import RegisteredUpload, UploadRow
from dyna_assets.errors import RecordingError, UploadError
from dyna_assets.landing.quarantine import file_faults, find_landed, release, retry, upload_named
from dyna_assets.landing.register import Registration, register_landing, utc_now
from dyna_assets.landing.upload import commit_upload
from dyna_assets.shard_uploads import VerifiedUploads, verify_uploads


@pytest.fixture
def bench(catalog: Catalog, tmp_path: Path) -> Bench:
    """Two committed uploads of two recordings each."""
    for name in ("one", "two"):
        for recording in ("a", "b"):
            write_aloha(tmp_path / "landing" / name / f"{recording}.hdf5", 60)
        commit_upload(tmp_path / "landing" / name, **SAYS)
    return Bench.of(catalog, tmp_path / "landing", tmp_path / "lake")


def change_marker(bench: Bench, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    path = bench.landing / name / "upload.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def wrong_hash(data: dict[str, Any]) -> None:
    data["files"][0]["sha256"] = "0" * 64


def wrong_size(data: dict[str, Any]) -> None:
    data["files"][0]["size_bytes"] += 1


def upload(bench: Bench, name: str = "one") -> UploadRow:
    return upload_named(bench.catalog, name)


def verify(bench: Bench) -> VerifiedUploads:
    """What a shard's run does first."""
    fresh = {row.upload_id: row for row in bench.episodes() if row.upload_state == "registered"}
    return verify_uploads(bench.catalog, bench.settings, fresh, num_uploads=2)


def released(bench: Bench, name: str = "one", reason: str = "re-encoded on purpose") -> RegisteredUpload:
    return release(
        bench.catalog, bench.source, bench.settings, upload(bench, name), by="kim", reason=reason, versions="v1",
        now=utc_now(),
    )  # fmt: skip


def retried(bench: Bench, name: str = "one") -> Registration:
    row = upload(bench, name)
    return retry(bench.catalog, bench.source, bench.settings, row, versions="v1", now=utc_now())


def settle(bench: Bench) -> None:
    """As a run that finished: no shard is due."""
    for shard in bench.catalog.due_shards():
        bench.catalog.settle(shard.key, shard.revision)


def test_a_refused_hash_is_released_with_who_when_and_why_and_its_rows_become_due(bench: Bench) -> None:
    change_marker(bench, "one", wrong_hash)
    bench.register()
    assert verify(bench).num_verified == 1
    settle(bench)
    refused = upload(bench)
    assert (refused.state, "expected sha256 000" in refused.reason) == ("quarantined", True)
    result = released(bench)
    assert (result.num_new_episodes, result.num_changed_episodes) == (0, 1)
    now = upload(bench)
    assert (now.state, now.reason) == ("registered", "")
    (said,) = now.notes[RELEASES]
    assert (said["by"], said["reason"], said["overruled"]) == ("kim", "re-encoded on purpose", refused.reason)
    assert said["at"].startswith("20")
    assert len(bench.catalog.due_shards()) == 1
    assert verify(bench).quarantined == ()  # it stays released: what lies there now is what was released
    assert not bench.register().quarantined


def test_a_released_upload_goes_all_the_way(bench: Bench) -> None:
    change_marker(bench, "one", wrong_size)
    bench.register()
    released(bench)
    assert {step: result.status for step, result in bench.through(bench.row("one/a")).items()} == {
        "recordings": "ok",
        "gate_before": "ok",
        "episodes": "ok",
        "gate_after": "ok",
    }


def test_after_a_release_other_bytes_are_refused_again(bench: Bench) -> None:
    change_marker(bench, "one", wrong_hash)
    bench.register()
    verify(bench)
    released(bench)
    write_aloha(bench.landing / "one/a.hdf5", 61)
    assert "expected sha256" in verify(bench).quarantined[0]


def test_an_upload_of_the_wrong_size_or_without_some_files_is_released_as_it_lies_there(bench: Bench) -> None:
    change_marker(bench, "one", wrong_size)
    (bench.landing / "one/b.hdf5").unlink()
    bench.register()
    assert len(bench.episodes()) == 2  # of the other upload
    assert released(bench).num_new_episodes == 1
    assert [row.name for row in bench.episodes()] == ["one/a", "two/a", "two/b"]
    marker = upload(bench).marker
    assert marker is not None and [file["path"] for file in marker["files"]] == ["a.hdf5"]


@pytest.mark.parametrize("content", ["", "{", '{"schema": "dyna.upload/9"}'])
def test_an_upload_whose_marker_cannot_be_read_is_released_without_one(bench: Bench, content: str) -> None:
    (bench.landing / "one/upload.json").write_text(content)
    bench.register()
    assert released(bench).num_new_episodes == 2
    assert upload(bench).marker is None


def test_an_upload_of_another_source_is_released_to_this_one(bench: Bench) -> None:
    change_marker(bench, "one", lambda data: data.update(source="kitchen"))
    bench.register()
    assert "its marker names source 'kitchen'" in upload(bench).reason
    assert released(bench).num_new_episodes == 2


def test_files_that_changed_after_the_marker_are_released_and_their_rows_done_again(bench: Bench) -> None:
    bench.register()
    settle(bench)
    before = {row.name: row.input_hash for row in bench.episodes()}
    write_aloha(bench.landing / "one/a.hdf5", 61)
    (bench.landing / "one/upload.json").unlink()
    commit_upload(bench.landing / "one", **SAYS)
    bench.register()
    assert "its files changed after upload.json said it was complete" in upload(bench).reason
    assert released(bench).num_changed_episodes == 1
    after = {row.name: row.input_hash for row in bench.episodes()}
    assert {name for name in before if before[name] != after[name]} == {"one/a"}
    assert len(bench.catalog.due_shards()) == 1


def test_a_second_release_keeps_the_first(bench: Bench) -> None:
    change_marker(bench, "one", wrong_hash)
    bench.register()
    verify(bench)
    released(bench, reason="first")
    write_aloha(bench.landing / "one/a.hdf5", 61)
    verify(bench)
    released(bench, reason="second")
    assert [said["reason"] for said in upload(bench).notes[RELEASES]] == ["first", "second"]


def test_no_word_helps_against_a_link_out_of_the_folder(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret.hdf5").write_bytes(b"x")
    (bench.landing / "one/a.hdf5").unlink()
    (bench.landing / "one/a.hdf5").symlink_to(tmp_path / "secret.hdf5")
    bench.register()
    with pytest.raises(
        UploadError, match=r"a\.hdf5 is a link to .*secret\.hdf5, outside the upload's folder"
    ):
        released(bench)
    assert upload(bench).state == "quarantined"


def test_no_word_helps_where_the_reader_finds_nothing(bench: Bench) -> None:
    for file in (bench.landing / "one").glob("*.hdf5"):
        file.rename(file.with_suffix(".bin"))
    (bench.landing / "one/upload.json").unlink()
    commit_upload(bench.landing / "one", **SAYS)
    bench.register()
    with pytest.raises(RecordingError, match=r"expected files \*\.hdf5 or \*\.h5, found 2 files \(2 \.bin\)"):
        released(bench)


def test_a_release_without_a_reason_is_refused(bench: Bench) -> None:
    change_marker(bench, "one", wrong_size)
    bench.register()
    with pytest.raises(UploadError, match="a release needs a reason"):
        released(bench, reason="  ")


def test_what_is_not_quarantined_is_neither_released_nor_retried(bench: Bench) -> None:
    bench.register()
    for act in (released, retried):
        with pytest.raises(UploadError, match="'lab: one' is not quarantined, it is registered"):
            act(bench)


def test_what_is_gone_is_neither_released_nor_retried(bench: Bench) -> None:
    change_marker(bench, "one", wrong_size)
    bench.register()
    shutil.rmtree(bench.landing / "one")
    for act in (released, retried):
        with pytest.raises(
            UploadError, match=r"/one: this upload is not there any more; landed files must stay"
        ):
            act(bench)


def test_a_retry_looks_again_at_what_did_not_change(bench: Bench) -> None:
    good = bench.source
    bench.source = good.model_copy(update={"reader": "mcap"})
    assert set(bench.register().quarantined) == {"lab: one", "lab: two"}
    bench.source = good
    assert retried(bench).registered == {"lab: one": 2}
    assert (upload(bench).state, upload(bench, "two").state) == ("registered", "quarantined")
    assert len(bench.catalog.due_shards()) == 1


def test_a_retry_of_what_is_still_wrong_says_so(bench: Bench) -> None:
    change_marker(bench, "one", wrong_size)
    bench.register()
    done = retried(bench)
    assert re.search(r"a\.hdf5: expected [\d,]+ bytes, found [\d,]+", done.quarantined["lab: one"])


def test_a_retry_of_a_hash_that_a_run_found_wrong_looks_at_it_again(bench: Bench) -> None:
    file = bench.landing / "one/a.hdf5"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    bench.register()
    verify(bench)
    assert "a.hdf5: expected sha256" in retried(bench).quarantined["lab: one"]
    assert upload(bench).state == "quarantined"
    file.write_bytes(good)
    assert set(retried(bench).registered) == {"lab: one"}
    assert upload(bench).state == "registered"


def test_since_when_it_is_quarantined_is_kept_at_registration_and_by_a_run(bench: Bench) -> None:
    change_marker(bench, "one", wrong_size)
    change_marker(bench, "two", wrong_hash)
    bench.register()
    verify(bench)
    for name in ("one", "two"):
        assert upload(bench, name).notes[SINCE].startswith(str(utc_now().year))


def test_every_listed_file_that_is_otherwise_is_explained(bench: Bench) -> None:
    (bench.landing / "one/b.hdf5").unlink()
    change_marker(bench, "one", wrong_size)
    bench.register()
    row = upload(bench)
    faults = list(file_faults(find_landed(bench.source, bench.settings, row, utc_now())))
    assert [(path, found) for path, _, found in faults] == [
        ("a.hdf5", f"{(bench.landing / 'one/a.hdf5').stat().st_size:,} bytes"),
        ("b.hdf5", "no such file"),
    ]


def test_uploads_are_found_by_name_by_id_and_with_their_source(bench: Bench, tmp_path: Path) -> None:
    bench.register()
    row = upload(bench)
    assert upload(bench, str(row.id)) == upload(bench, "lab: one") == row
    with pytest.raises(UploadError, match=r"no upload 'on'\. Nearest: .*one"):
        upload(bench, "on")
    with pytest.raises(UploadError, match=r"no upload 'zzz'\. There are 2 uploads"):
        upload(bench, "zzz")


def test_a_name_in_two_sources_asks_which(bench: Bench, tmp_path: Path) -> None:
    bench.register()
    write_mcap(tmp_path / "other/one/a.mcap", 3)
    commit_upload(tmp_path / "other/one", **{**SAYS, "source": "lab2"})
    other = Bench.of(bench.catalog, tmp_path / "other", bench.lake)
    other.source = other.source.model_copy(update={"name": "lab2"})
    done = register_landing(
        bench.catalog, {"lab2": other.source}, bench.settings, versions="v1", now=utc_now()
    )
    assert done.registered
    with pytest.raises(
        UploadError, match=r"'one' is the name of 2 uploads: 'lab: one', 'lab2: one'\. Say which"
    ):
        upload(bench)
