"""Quarantine: what is listed and explained, what a person may overrule, and what happens then."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import SAYS, Lab
from recordings import write_aloha, write_mcap

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.quarantine import SINCE
from dyna_assets.catalog.registration import RELEASES
from dyna_assets.catalog.rows import RegisteredUpload, UploadRow
from dyna_assets.errors import RecordingError, UploadError
from dyna_assets.landing.quarantine import file_faults, find_landed, release, retry, upload_named
from dyna_assets.landing.register import Registration, register_landing, utc_now
from dyna_assets.landing.upload import commit_upload
from dyna_assets.shard_uploads import VerifiedUploads, verify_uploads


@pytest.fixture
def lab(catalog: Catalog, tmp_path: Path) -> Lab:
    """Two committed uploads of two recordings each."""
    for name in ("one", "two"):
        for recording in ("a", "b"):
            write_aloha(tmp_path / "landing" / name / f"{recording}.hdf5", 60)
        commit_upload(tmp_path / "landing" / name, **SAYS)
    return Lab.of(catalog, tmp_path / "landing", tmp_path / "lake")


def change_marker(lab: Lab, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    path = lab.landing / name / "upload.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def wrong_hash(data: dict[str, Any]) -> None:
    data["files"][0]["sha256"] = "0" * 64


def wrong_size(data: dict[str, Any]) -> None:
    data["files"][0]["size_bytes"] += 1


def upload(lab: Lab, name: str = "one") -> UploadRow:
    return upload_named(lab.catalog, name)


def verify(lab: Lab) -> VerifiedUploads:
    """What a shard's run does first."""
    fresh = {row.upload_id: row for row in lab.episodes() if row.upload_state == "registered"}
    return verify_uploads(lab.catalog, lab.settings, fresh, num_uploads=2)


def released(lab: Lab, name: str = "one", reason: str = "re-encoded on purpose") -> RegisteredUpload:
    return release(
        lab.catalog, lab.source, lab.settings, upload(lab, name), by="kim", reason=reason, versions="v1",
        now=utc_now(),
    )  # fmt: skip


def retried(lab: Lab, name: str = "one") -> Registration:
    row = upload(lab, name)
    return retry(lab.catalog, lab.source, lab.settings, row, versions="v1", now=utc_now())


def settle(lab: Lab) -> None:
    """As a run that finished: no shard is due."""
    for shard in lab.catalog.due_shards():
        lab.catalog.settle(shard.key, shard.revision)


def test_a_refused_hash_is_released_with_who_when_and_why_and_its_rows_become_due(lab: Lab) -> None:
    change_marker(lab, "one", wrong_hash)
    lab.register()
    assert verify(lab).num_verified == 1
    settle(lab)
    refused = upload(lab)
    assert (refused.state, "expected sha256 000" in refused.reason) == ("quarantined", True)
    result = released(lab)
    assert (result.num_new_episodes, result.num_changed_episodes) == (0, 1)
    now = upload(lab)
    assert (now.state, now.reason) == ("registered", "")
    (said,) = now.notes[RELEASES]
    assert (said["by"], said["reason"], said["overruled"]) == ("kim", "re-encoded on purpose", refused.reason)
    assert said["at"].startswith("20")
    assert len(lab.catalog.due_shards()) == 1
    assert verify(lab).quarantined == ()  # it stays released: what lies there now is what was released
    assert not lab.register().quarantined


def test_a_released_upload_goes_all_the_way(lab: Lab) -> None:
    change_marker(lab, "one", wrong_size)
    lab.register()
    released(lab)
    assert {step: result.status for step, result in lab.through(lab.row("one/a")).items()} == {
        "recordings": "ok",
        "gate_before": "ok",
        "episodes": "ok",
        "gate_after": "ok",
    }


def test_after_a_release_other_bytes_are_refused_again(lab: Lab) -> None:
    change_marker(lab, "one", wrong_hash)
    lab.register()
    verify(lab)
    released(lab)
    write_aloha(lab.landing / "one/a.hdf5", 61)
    assert "expected sha256" in verify(lab).quarantined[0]


def test_a_released_upload_whose_files_are_put_right_is_read_again(lab: Lab) -> None:
    right = (lab.landing / "one/a.hdf5").read_bytes()
    write_aloha(lab.landing / "one/a.hdf5", 61)  # not what the marker lists
    lab.register()
    released(lab)
    wrong_hash_of_input = next(row.input_hash for row in lab.episodes() if row.name == "one/a")
    settle(lab)
    (lab.landing / "one/a.hdf5").write_bytes(right)
    assert list(lab.register().registered.values()) == [1]
    now = next(row for row in lab.episodes() if row.name == "one/a")
    assert (now.upload_state, now.input_hash == wrong_hash_of_input) == ("registered", False)
    assert lab.catalog.due_shards()
    assert RELEASES not in upload(lab).notes


def test_an_upload_of_the_wrong_size_or_without_some_files_is_released_as_it_lies_there(lab: Lab) -> None:
    change_marker(lab, "one", wrong_size)
    (lab.landing / "one/b.hdf5").unlink()
    lab.register()
    assert len(lab.episodes()) == 2  # of the other upload
    assert released(lab).num_new_episodes == 1
    assert [row.name for row in lab.episodes()] == ["one/a", "two/a", "two/b"]
    marker = upload(lab).marker
    assert marker is not None and [file["path"] for file in marker["files"]] == ["a.hdf5"]


@pytest.mark.parametrize("content", ["", "{", '{"schema": "dyna.upload/9"}'])
def test_an_upload_whose_marker_cannot_be_read_is_released_without_one(lab: Lab, content: str) -> None:
    (lab.landing / "one/upload.json").write_text(content)
    lab.register()
    assert released(lab).num_new_episodes == 2
    assert upload(lab).marker is None


def test_an_upload_of_another_source_is_released_to_this_one(lab: Lab) -> None:
    change_marker(lab, "one", lambda data: data.update(source="kitchen"))
    lab.register()
    assert "its marker names source 'kitchen'" in upload(lab).reason
    assert released(lab).num_new_episodes == 2


def test_files_that_changed_after_the_marker_are_released_and_their_rows_done_again(lab: Lab) -> None:
    lab.register()
    settle(lab)
    before = {row.name: row.input_hash for row in lab.episodes()}
    write_aloha(lab.landing / "one/a.hdf5", 61)
    (lab.landing / "one/upload.json").unlink()
    commit_upload(lab.landing / "one", **SAYS)
    lab.register()
    assert "its files changed after upload.json said it was complete" in upload(lab).reason
    assert released(lab).num_changed_episodes == 1
    after = {row.name: row.input_hash for row in lab.episodes()}
    assert {name for name in before if before[name] != after[name]} == {"one/a"}
    assert len(lab.catalog.due_shards()) == 1


def test_a_second_release_keeps_the_first(lab: Lab) -> None:
    change_marker(lab, "one", wrong_hash)
    lab.register()
    verify(lab)
    released(lab, reason="first")
    write_aloha(lab.landing / "one/a.hdf5", 61)
    verify(lab)
    released(lab, reason="second")
    assert [said["reason"] for said in upload(lab).notes[RELEASES]] == ["first", "second"]


def test_no_word_helps_against_a_link_out_of_the_folder(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "secret.hdf5").write_bytes(b"x")
    (lab.landing / "one/a.hdf5").unlink()
    (lab.landing / "one/a.hdf5").symlink_to(tmp_path / "secret.hdf5")
    lab.register()
    with pytest.raises(
        UploadError, match=r"a\.hdf5 is a link to .*secret\.hdf5, outside the upload's folder"
    ):
        released(lab)
    assert upload(lab).state == "quarantined"


def test_no_word_helps_where_the_reader_finds_nothing(lab: Lab) -> None:
    for file in (lab.landing / "one").glob("*.hdf5"):
        file.rename(file.with_suffix(".bin"))
    (lab.landing / "one/upload.json").unlink()
    commit_upload(lab.landing / "one", **SAYS)
    lab.register()
    with pytest.raises(RecordingError, match=r"expected files \*\.hdf5 or \*\.h5, found 2 files \(2 \.bin\)"):
        released(lab)


def test_a_release_without_a_reason_is_refused(lab: Lab) -> None:
    change_marker(lab, "one", wrong_size)
    lab.register()
    with pytest.raises(UploadError, match="a release needs a reason"):
        released(lab, reason="  ")


def test_what_is_not_quarantined_is_neither_released_nor_retried(lab: Lab) -> None:
    lab.register()
    for act in (released, retried):
        with pytest.raises(UploadError, match="'lab: one' is not quarantined, it is registered"):
            act(lab)


def test_what_is_gone_is_neither_released_nor_retried(lab: Lab) -> None:
    change_marker(lab, "one", wrong_size)
    lab.register()
    shutil.rmtree(lab.landing / "one")
    for act in (released, retried):
        with pytest.raises(
            UploadError, match=r"/one: this upload is not there any more; landed files must stay"
        ):
            act(lab)


def test_a_retry_looks_again_at_what_did_not_change(lab: Lab) -> None:
    good = lab.source
    lab.source = good.model_copy(update={"reader": "mcap"})
    assert set(lab.register().quarantined) == {"lab: one", "lab: two"}
    lab.source = good
    assert retried(lab).registered == {"lab: one": 2}
    assert (upload(lab).state, upload(lab, "two").state) == ("registered", "quarantined")
    assert len(lab.catalog.due_shards()) == 1


def test_a_retry_of_what_is_still_wrong_says_so(lab: Lab) -> None:
    change_marker(lab, "one", wrong_size)
    lab.register()
    done = retried(lab)
    assert re.search(r"a\.hdf5: expected [\d,]+ bytes, found [\d,]+", done.quarantined["lab: one"])


def test_a_retry_of_a_hash_that_a_run_found_wrong_looks_at_it_again(lab: Lab) -> None:
    file = lab.landing / "one/a.hdf5"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    lab.register()
    verify(lab)
    assert "a.hdf5: expected sha256" in retried(lab).quarantined["lab: one"]
    assert upload(lab).state == "quarantined"
    file.write_bytes(good)
    assert set(retried(lab).registered) == {"lab: one"}
    assert upload(lab).state == "registered"


def test_since_when_it_is_quarantined_is_kept_at_registration_and_by_a_run(lab: Lab) -> None:
    change_marker(lab, "one", wrong_size)
    change_marker(lab, "two", wrong_hash)
    lab.register()
    verify(lab)
    for name in ("one", "two"):
        assert upload(lab, name).notes[SINCE].startswith(str(utc_now().year))


def test_every_listed_file_that_is_otherwise_is_explained(lab: Lab) -> None:
    (lab.landing / "one/b.hdf5").unlink()
    change_marker(lab, "one", wrong_size)
    lab.register()
    row = upload(lab)
    faults = list(file_faults(find_landed(lab.source, lab.settings, row, utc_now())))
    assert [(path, found) for path, _, found in faults] == [
        ("a.hdf5", f"{(lab.landing / 'one/a.hdf5').stat().st_size:,} bytes"),
        ("b.hdf5", "no such file"),
    ]


def test_uploads_are_found_by_name_by_id_and_with_their_source(lab: Lab, tmp_path: Path) -> None:
    lab.register()
    row = upload(lab)
    assert upload(lab, str(row.id)) == upload(lab, "lab: one") == row
    with pytest.raises(UploadError, match=r"no upload 'on'\. Nearest: .*one"):
        upload(lab, "on")
    with pytest.raises(UploadError, match=r"no upload 'zzz'\. There are 2 uploads"):
        upload(lab, "zzz")


def test_a_name_in_two_sources_asks_which(lab: Lab, tmp_path: Path) -> None:
    lab.register()
    write_mcap(tmp_path / "other/one/a.mcap", 3)
    commit_upload(tmp_path / "other/one", **{**SAYS, "source": "lab2"})
    other = Lab.of(lab.catalog, tmp_path / "other", lab.lake)
    other.source = other.source.model_copy(update={"name": "lab2"})
    done = register_landing(lab.catalog, {"lab2": other.source}, lab.settings, versions="v1", now=utc_now())
    assert done.registered
    with pytest.raises(
        UploadError, match=r"'one' is the name of 2 uploads: 'lab: one', 'lab2: one'\. Say which"
    ):
        upload(lab)
