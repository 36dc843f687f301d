"""How uploads enter the catalog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from catalog_samples import NOW, recordings, register, upload

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.errors import SetupError, UploadError


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A catalog with the source 'lab'."""
    catalog.add_source("lab", landing_uri="/landing/lab", reader="aloha", now=NOW)
    return catalog


def names(catalog: Catalog, key: str) -> list[str]:
    return [episode.name for episode in catalog.shard_episodes(key)]


def test_an_upload_comes_back_as_it_was_registered(catalog: Catalog) -> None:
    done = register(catalog, upload("u1"), recordings("u1/a", "u1/b"))
    assert (done.shard_key, done.num_new_episodes, done.num_changed_episodes) == ("shard-000000", 2, 0)
    first, second = catalog.shard_episodes("shard-000000")
    assert (first.id, second.id) == (1, 2)
    assert (first.name, first.source, first.upload, first.upload_uri) == (
        "u1/a",
        "lab",
        "u1",
        "/landing/lab/u1",
    )
    assert (first.upload_state, first.upload_reason, first.upload_kind) == ("registered", "", "teleoperation")
    assert (first.robot, first.task, first.marker) == ("so101", "fold a towel", {"version": 1})
    assert (first.files, first.input_hash, first.size_bytes) == (("u1/a.hdf5",), "h", 10)
    (row,) = catalog.uploads("lab")
    assert (row.id, row.shard_key, row.registered_at) == (done.upload_id, "shard-000000", NOW)
    assert {row.name: row.digest for row in catalog.uploads("lab")} == {"u1": "d"}


def test_the_same_upload_again_changes_nothing(catalog: Catalog) -> None:
    first = register(catalog, upload("u1"), recordings("u1/a"))
    shard = catalog.shard("shard-000000")
    again = register(catalog, upload("u1"), recordings("u1/a"), after_s=5)
    assert (again.upload_id, again.shard_key, again.num_new_episodes) == (first.upload_id, first.shard_key, 0)
    assert catalog.shard("shard-000000") == shard


def test_a_committed_upload_that_changed_is_refused(catalog: Catalog) -> None:
    register(catalog, upload("u1"), recordings("u1/a"))
    with pytest.raises(
        UploadError, match=r"'lab', upload 'u1': its files changed .* digest d, found e\).*immutable"
    ):
        register(catalog, upload("u1", digest="e"), recordings("u1/a", "u1/b"))
    assert names(catalog, "shard-000000") == ["u1/a"]


def test_a_committed_upload_cannot_change_by_way_of_quarantine(catalog: Catalog) -> None:
    register(catalog, upload("u1"), recordings("u1/a"))
    catalog.quarantine_upload("lab", upload("u1", digest="e"), "its files changed", now=NOW)
    for has_marker in (True, False):
        with pytest.raises(UploadError, match="Landed uploads are immutable"):
            altered = upload("u1", digest="f", has_marker=has_marker)
            register(catalog, altered, recordings("u1/a", input_hash="other"))


def test_the_rows_of_an_upload_that_is_back_from_quarantine_are_done_again(catalog: Catalog) -> None:
    register(catalog, upload("u1"), recordings("u1/a"))
    catalog.quarantine_upload("lab", upload("u1", digest="e"), "its files changed", now=NOW)
    (due,) = catalog.due_shards()
    catalog.settle(due.key, due.revision)
    register(catalog, upload("u1"), recordings("u1/a"))
    assert catalog.quarantined() == []
    assert [row.upload_state for row in catalog.shard_episodes(due.key)] == ["registered"]
    assert [shard.key for shard in catalog.due_shards()] == [due.key]


def test_an_upload_without_marker_may_grow_and_change(catalog: Catalog) -> None:
    register(catalog, upload("u1", has_marker=False), recordings("u1/a", "u1/b"))
    for shard in catalog.due_shards():
        catalog.settle(shard.key, shard.revision)
    changed = [*recordings("u1/a", input_hash="other"), *recordings("u1/b", "u1/c")]
    done = register(catalog, upload("u1", has_marker=False, digest="e"), changed)
    assert (done.num_new_episodes, done.num_changed_episodes) == (1, 1)
    rows = catalog.shard_episodes("shard-000000")
    assert [(row.name, row.input_hash) for row in rows] == [("u1/a", "other"), ("u1/b", "h"), ("u1/c", "h")]
    assert [shard.key for shard in catalog.due_shards()] == ["shard-000000"]
    assert {row.name: row.digest for row in catalog.uploads("lab")} == {"u1": "e"}


def test_a_changed_recording_makes_its_own_shard_due_wherever_the_new_ones_go(catalog: Catalog) -> None:
    register(catalog, upload("u1", has_marker=False), recordings("u1/a", "u1/b", "u1/c", "u1/d"))
    catalog.settle("shard-000000", 1)
    changed = [*recordings("u1/a", input_hash="other"), *recordings("u1/b", "u1/c", "u1/d", "u1/e")]
    done = register(catalog, upload("u1", has_marker=False, digest="e"), changed)
    assert done.shard_key == "shard-000001"
    assert [shard.key for shard in catalog.due_shards()] == ["shard-000000", "shard-000001"]


def test_an_upload_without_recordings_is_refused(catalog: Catalog) -> None:
    with pytest.raises(
        UploadError, match=r"upload 'u1': expected at least one recording, found none in its 1 files"
    ):
        register(catalog, upload("u1"), [])


def test_a_recording_that_is_there_twice_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UploadError, match=r"upload 'u1': expected every recording once, found 'a' 2 times"):
        register(catalog, upload("u1"), recordings("a", "a"))


def test_a_recording_that_another_upload_brought_is_refused(catalog: Catalog) -> None:
    register(catalog, upload("u1"), recordings("a"))
    with pytest.raises(
        UploadError, match=r"upload 'u2': recording 'a' came before, with another upload \(episode 1\)"
    ):
        register(catalog, upload("u2"), recordings("a"))
    assert list({row.name: row.digest for row in catalog.uploads("lab")}) == ["u1"]


def test_two_sources_may_use_the_same_names(catalog: Catalog) -> None:
    catalog.add_source("vendor", landing_uri="/landing/vendor", reader="mcap", now=NOW)
    register(catalog, upload("u1"), recordings("a"))
    assert {row.name: row.digest for row in catalog.uploads("vendor")} == {}
    catalog.quarantine_upload("vendor", upload("u1"), "cut", now=NOW)
    assert [(row.source, row.name) for row in catalog.uploads()] == [("lab", "u1"), ("vendor", "u1")]


def test_an_unknown_source_is_refused_with_those_there_are(catalog: Catalog) -> None:
    with pytest.raises(
        SetupError, match=r"source 'labb' is not in the catalog \(there: lab\)\. Add it first"
    ):
        catalog.quarantine_upload("labb", upload("u1"), "cut", now=NOW)


def test_a_source_added_again_is_brought_up_to_date(catalog: Catalog) -> None:
    (before,) = catalog.sources()
    after = catalog.add_source("lab", landing_uri="s3://landing/lab", reader="mcap", now=NOW)
    assert (after.id, after.landing_uri, after.reader) == (before.id, "s3://landing/lab", "mcap")
    assert catalog.sources() == [after]


def test_a_quarantined_upload_is_known_with_its_reason_and_has_no_episodes(catalog: Catalog) -> None:
    catalog.quarantine_upload("lab", upload("u1"), "video.mp4: sha256 differs", now=NOW)
    (row,) = catalog.quarantined()
    assert (row.name, row.reason, row.shard_key) == ("u1", "video.mp4: sha256 differs", None)
    assert {row.name: row.digest for row in catalog.uploads("lab")} == {"u1": "d"}
    assert catalog.shards() == []


def test_a_quarantined_upload_that_was_put_right_is_registered(catalog: Catalog) -> None:
    catalog.quarantine_upload("lab", upload("u1"), "cut", now=NOW)
    register(catalog, upload("u1", digest="e"), recordings("u1/a"))
    assert catalog.quarantined() == []
    assert names(catalog, "shard-000000") == ["u1/a"]


def test_quarantine_reaches_the_rows_of_an_upload_that_was_in_force(catalog: Catalog) -> None:
    register(catalog, upload("u1"), recordings("u1/a"))
    catalog.settle("shard-000000", 1)
    catalog.quarantine_upload("lab", upload("u1", digest="e"), "its files changed", now=NOW)
    (row,) = catalog.shard_episodes("shard-000000")
    assert (row.upload_state, row.upload_reason) == ("quarantined", "its files changed")
    assert [shard.key for shard in catalog.due_shards()] == ["shard-000000"]


def test_a_run_that_rejects_an_upload_does_not_make_its_own_shard_due(catalog: Catalog) -> None:
    done = register(catalog, upload("u1"), recordings("u1/a"))
    catalog.settle("shard-000000", 1)
    catalog.reject_upload(done.upload_id, reason="sha256 differs")
    assert [row.reason for row in catalog.quarantined()] == ["sha256 differs"]
    assert catalog.due_shards() == []


def test_uploads_registered_at_once_by_many_get_ids_and_shards_without_gaps(catalog: Catalog) -> None:
    def one(number: int) -> None:
        register(catalog, upload(f"u{number}"), recordings(f"u{number}/a", f"u{number}/b"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(8)))
    ids = [episode.id for shard in catalog.shards() for episode in catalog.shard_episodes(shard.key)]
    assert ids == list(range(1, 17))
    assert [shard.num_episodes for shard in catalog.shards()] == [4, 4, 4, 4]


def test_a_large_upload_keeps_the_order_of_its_recordings(catalog: Catalog) -> None:
    many = [f"u1/{number:05d}" for number in reversed(range(2500))]
    register(catalog, upload("u1"), recordings(*many))
    rows = catalog.shard_episodes("shard-000000")
    assert [row.name for row in rows] == many
    assert [row.id for row in rows] == list(range(1, 2501))


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    url = "postgresql://dyna:secret@127.0.0.1:1/dyna"
    with pytest.raises(
        SetupError, match=r"postgresql://dyna:\*\*\*@127\.0\.0\.1:1/dyna: .*cannot be used.*refused"
    ):
        Catalog.open(url)


def test_an_opened_catalog_outlives_a_restart_of_its_connections(
    catalog: Catalog, empty_catalog_url: str
) -> None:
    with Catalog.open(empty_catalog_url) as other, other._engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert [source.name for source in catalog.sources()] == ["lab"]
