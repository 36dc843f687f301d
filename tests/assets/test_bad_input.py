"""Bad input ends as a quarantined upload or a rejected row, with a reason that a person can act on.

Through the real registration and the real step functions. Planted faults of the recorder are in test_path_faults.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pyarrow as pa
import pytest
import recordings as samples
from bag_samples import write_bag
from fsspec.implementations.local import LocalFileSystem
from landing_bench import OPTIONS, SAYS, WRITERS, Bench
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from recordings import (
    T0_NS,
    change_info,
    write_aloha,
    write_lerobot_v21,
    write_mcap,
    write_text,
)
from tf_records import episode, example, write_records
from unprivileged import as_nobody, open_folder

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.landing.profile import CameraRole
from dyna_assets.landing.upload import MAX_TEXT, commit_upload
from dyna_assets.steps.attempt import attempt
from dyna_train.episode.reader import Episode


def commit(folder: Path, change: Callable[[str], bytes] | None = None) -> None:
    """Commit the folder; change: what becomes of the marker's text."""
    commit_upload(folder, **SAYS)
    if change is not None:
        marker = folder / "upload.json"
        marker.write_bytes(change(marker.read_text()))


# An upload replaced during reading


class Replacing(LocalFileSystem):  # type: ignore[misc]
    """A store on which somebody replaces a file as soon as it is opened."""

    protocol = "replacing"
    replace_with: Callable[[Path], None] | None = None

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        handle = super().open(path, mode, **options)
        if Replacing.replace_with is not None and path.endswith(".hdf5"):
            Replacing.replace_with(Path(path))
            Replacing.replace_with = None
        return handle


fsspec.register_implementation("replacing", Replacing, clobber=True)


def flipped(content: bytes) -> bytes:
    """As long, and other bytes at the end."""
    return content[:-200] + bytes(byte ^ 255 for byte in content[-200:])


def other_content(path: Path) -> None:
    path.write_bytes(flipped(path.read_bytes()))


def another_file_of_the_same_size_and_time(path: Path) -> None:
    status = path.stat()
    part = path.with_suffix(".part")
    part.write_bytes(flipped(path.read_bytes()))
    os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
    part.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize("change", [other_content, another_file_of_the_same_size_and_time, Path.unlink])
@pytest.mark.parametrize("step", ["recordings", "episodes"])
def test_a_file_that_is_replaced_while_it_is_read_makes_no_episode_of_two(
    catalog: Catalog, tmp_path: Path, change: Callable[[Path], None], step: str
) -> None:
    write_aloha(tmp_path / "set/a.hdf5", 60)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    bench.register()
    row = replace(bench.row(), upload_uri=f"replacing://{tmp_path}/set")
    if step == "episodes":
        tables = bench.through(bench.row(), "gate_before")["recordings"].rows
        row = replace(row, upstream={"recordings": tables["recordings"][0]})
    Replacing.replace_with = change
    result = attempt(step, row)
    assert result.status == "rejected"
    assert re.match(
        r"upload\.unchanged: .*a\.hdf5: replaced while it was read: it was size \d+", result.reason
    )
    assert "upload the new ones under a new name" in result.reason
    assert not list((tmp_path / "lake").rglob("*.mcap"))


def test_a_file_that_nobody_touches_is_read_over_any_store(catalog: Catalog, tmp_path: Path) -> None:
    write_aloha(tmp_path / "set/a.hdf5", 60)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    bench.register()
    row = replace(bench.row(), upload_uri=f"replacing://{tmp_path}/set")
    assert {result.status for result in bench.through(row).values()} == {"ok"}


def test_files_replaced_under_a_marker_that_stays_are_found_by_their_hashes(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    commit(tmp_path / "landing/one")
    bench = Bench.of(catalog, tmp_path / "landing", tmp_path / "lake")
    assert bench.register().registered == {"lab: one": 1}
    another_file_of_the_same_size_and_time(tmp_path / "landing/one/a.hdf5")
    os.utime(tmp_path / "landing/one/a.hdf5")
    assert re.search(r"a\.hdf5: expected sha256 \w+, found", bench.register().quarantined["lab: one"])


# Names


def test_two_uploads_with_one_episode_name_the_second_is_refused_with_the_first(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "set/x.hdf5", 60)
    write_aloha(tmp_path / "set/day/y.hdf5", 60)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    bench.register()
    assert {row.name for row in bench.episodes()} == {"x", "day/y"}
    commit(tmp_path / "set/day")
    bench.register()
    assert re.search(
        r"upload 'day': recording 'day/y' came before, with another upload \(episode \d\)\. Names are unique within a "
        "source: rename it, or land it under another source",
        bench.refusal("day"),
    )


def test_a_wrong_topic_in_the_toml_names_the_topics_there_are_nearest_first(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_mcap(tmp_path / "set/a.mcap", 60)
    camera = CameraRole(name="top", topic="/top/image/compresed")
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake", cameras=(camera,))
    bench.register()
    assert re.match(
        r"gate_before: topics\.present: camera 'top' \(/top/image/compresed\): not in the recording; topics there: "
        r"/top/image/compressed, .*\. Correct the source profile or the recorder",
        bench.rejection(),
    )


# Clocks


def test_a_clock_in_the_future_is_rejected(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "T0_NS", 2_100_000_000_000_000_000)  # the year 2036
    write_mcap(tmp_path / "set/a.mcap", 60)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    bench.register()
    assert re.match(
        r"gate_before: time\.future: the last capture is [\d,.]+ days in the future: the recorder's clock is wrong",
        bench.rejection(),
    )


def test_a_camera_that_appears_half_way_is_rejected(catalog: Catalog, tmp_path: Path) -> None:
    whole = write_mcap(tmp_path / "whole.mcap", 120)
    (tmp_path / "set").mkdir()
    with whole.open("rb") as source, (tmp_path / "set/a.mcap").open("wb") as target:
        copy_without(source, target, "/top/image/compressed", before_ns=T0_NS + 2_000_000_000)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    bench.register()
    assert re.match(
        r"gate_before: time\.late_start: /top/image/compressed starts at 2\.0\d s, most topics by 0\.00 s: what came "
        "before is lost. Start the recorder when every sensor runs",
        bench.rejection(),
    )


def copy_without(source: Any, target: Any, topic: str, *, before_ns: int) -> None:
    """The messages but those of a topic that are from before a time."""
    writer = Writer(target)
    writer.start("ros2", "test")
    ids: dict[int, int] = {}
    for schema, channel, message in make_reader(source).iter_messages(log_time_order=False):
        assert schema is not None
        if channel.id not in ids:
            number = writer.register_schema(schema.name, schema.encoding, schema.data)
            ids[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, number)
        if channel.topic != topic or message.publish_time >= before_ns:
            writer.add_message(ids[channel.id], message.log_time, message.data, message.publish_time)
    writer.finish()  # type: ignore[no-untyped-call]


# Empty files of every format


EMPTY = [
    ("mcap", "a.mcap", "row", r"a\.mcap: .*0 bytes|a\.mcap: byte 0: expected"),
    ("aloha", "a.hdf5", "row", r"a\.hdf5: not readable as HDF5"),
    ("v21", "meta/info.json", "upload", r"meta/info\.json: not JSON at line 1"),
    ("v21", "meta/episodes.jsonl", "upload", r"finds no recording in it"),
    ("v21", "data/chunk-000/episode_000000.parquet", "row", r"topics\.present: .*not readable as parquet"),
    (
        "v21",
        f"videos/chunk-000/{'observation.images.top'}/episode_000000.mp4",
        "row",
        r"cannot be read as video",
    ),
    ("v30", "meta/episodes/chunk-000/file-000.parquet", "upload", r"not readable as parquet"),
    ("v30", "data/chunk-000/file-000.parquet", "row", r"not readable as parquet"),
    ("hands", "take.mp4", "row", r"take\.mp4: cannot be read as video"),
    ("hands", "take.csv", "row", r"take\.csv: cannot be read as csv"),
    ("db3", "{bag}.db3", "row", r"\.db3: .*"),
    ("rlds", "a.tfrecord", "row", r"a\.tfrecord: .*empty"),
]


@pytest.mark.parametrize(
    ("kind", "file", "level", "reason"), EMPTY, ids=[f"{e[0]}:{Path(e[1]).name}" for e in EMPTY]
)
def test_an_empty_file_costs_its_upload_or_row_with_the_file_named(
    catalog: Catalog, tmp_path: Path, kind: str, file: str, level: str, reason: str
) -> None:
    root = tmp_path / "set"
    WRITERS[kind](root)
    bench = Bench.of(catalog, root, tmp_path / "lake", **OPTIONS.get(kind, {}))
    path = root / file.format(bag=root.name)
    assert path.stat().st_size > 0
    path.write_bytes(b"")
    bench.register()
    found = bench.refusal() if level == "upload" else bench.rejection()
    assert re.search(reason, found), found
    assert len(found) > 30


def test_an_empty_metadata_file_of_a_bag_is_named_and_the_bag_read_without(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_bag(tmp_path / "set", "db3", range(60))
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    (tmp_path / "set/metadata.yaml").write_bytes(b"")
    assert bench.register().notes == [
        "lab: .: 1 of 1 bags have no metadata.yaml, first set",
        "lab: .: 1 files are read by nobody, first metadata.yaml; name them under the source's 'ignore'",
    ]


def test_an_empty_marker_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    bench = Bench.of(catalog, tmp_path / "landing", tmp_path / "lake")
    (tmp_path / "landing/one/upload.json").write_bytes(b"")
    bench.register()
    assert re.search(
        r"upload\.json: not JSON .*; 0 bytes\. Write the marker in one piece", bench.refusal("one")
    )


# Out of the folder


@pytest.mark.parametrize("has_marker", [True, False])
@pytest.mark.parametrize("what", ["file", "folder", "nothing"])
def test_a_link_out_of_the_upload_is_never_followed(
    catalog: Catalog, tmp_path: Path, what: str, has_marker: bool
) -> None:
    write_aloha(tmp_path / "elsewhere/secret.hdf5", 60)
    one = tmp_path / "landing/one"
    write_aloha(one / "a.hdf5", 60)
    if has_marker:
        commit(one)
    target = {"file": "elsewhere/secret.hdf5", "folder": "elsewhere", "nothing": "gone"}[what]
    (one / "link.hdf5").symlink_to(tmp_path / target)
    bench = Bench.of(catalog, tmp_path / "landing", tmp_path / "lake")
    bench.register()
    expected = {
        "file": r"link\.hdf5 is a link to .*elsewhere/secret\.hdf5, outside the upload's folder",
        "folder": r"link\.hdf5: is a link to a folder outside, .*/elsewhere, which is not followed; so nobody knows",
        "nothing": r"link\.hdf5: is a link to .*/gone, where nothing is; so nobody knows",
    }
    assert re.search(expected[what], bench.refusal("one"))
    assert bench.episodes() == []


def test_paths_with_dots_out_of_the_upload_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    commit(tmp_path / "landing/one", lambda text: text.replace('"a.hdf5"', '"../../a.hdf5"').encode())
    bench = Bench.of(catalog, tmp_path / "landing", tmp_path / "lake")
    bench.register()
    assert (
        "../../a.hdf5: expected a path inside the upload's folder, found one that leaves it"
        in bench.refusal("one")
    )


@pytest.mark.parametrize("path", ["../../{episode_index}.parquet", "/etc/{episode_index}.parquet"])
def test_metadata_that_leads_out_of_the_upload_is_refused(
    catalog: Catalog, tmp_path: Path, path: str
) -> None:
    root = write_lerobot_v21(tmp_path / "set", [30])
    bench = Bench.of(catalog, root, tmp_path / "lake")
    change_info(root, data_path=path)
    bench.register()
    assert re.search(r"info\.json: path template .* leads out of the data set", bench.refusal())


def test_a_data_set_inside_hdf5_that_lies_in_another_file_is_never_read(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "set/a.hdf5", 60)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    (tmp_path / "secret").write_bytes(bytes(60 * 4))
    with h5py.File(tmp_path / "set/a.hdf5", "a") as file:
        del file["action"]
        file.create_dataset("action", (60, 4), "u1", external=[(str(tmp_path / "secret"), 0, 240)])
    bench.register()
    assert re.match(
        r"gate_before: topics\.present: action 'action' \(action\): its values lie in other files",
        bench.rejection(),
    )


# Sizes


def test_a_chunk_that_says_it_unpacks_to_a_terabyte_is_refused_before_it_is(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = write_mcap(tmp_path / "set/a.mcap", 30, compression=CompressionType.ZSTD)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    patch(path, summary.chunk_indexes[0].chunk_start_offset + 9 + 16, 1 << 40)
    bench.register()
    assert re.search(
        r"a\.mcap: damaged at byte [\d,]+: a chunk says it holds 1,099,511,627,776 bytes unpacked, expected at most",
        bench.rejection(),
    )


def test_a_message_that_says_it_is_larger_than_any_memory_is_refused(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = write_mcap(tmp_path / "set/a.mcap", 30, use_chunking=False)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    patch(path, first_message(path.read_bytes()) + 1, 1 << 50)
    bench.register()
    assert re.search(
        r"a\.mcap: damaged at byte [\d,]+: .* 1,125,899,906,842,6\d\d bytes, the file ends at",
        bench.rejection(),
    )


def first_message(content: bytes) -> int:
    """Where the first message record of a file without chunks begins."""
    at = 8
    while content[at] != 5:
        at += 9 + int.from_bytes(content[at + 1 : at + 9], "little")
    return at


def patch(path: Path, at: int, value: int) -> None:
    """An unsigned number of eight bytes."""
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, at, value)
    path.write_bytes(content)


def test_rows_that_no_memory_holds_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    write_aloha(tmp_path / "set/a.hdf5", 60)
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    with h5py.File(tmp_path / "set/a.hdf5", "a") as file:
        del file["action"]
        file.create_dataset("action", (1 << 40, 4), "f4", chunks=(64, 4))
    bench.register()
    assert re.search(
        r"action: says that it has 1,099,511,627,776 rows|says that it has [\d,]+ rows", bench.rejection()
    )


# Texts

LONG = "fold the towel, then put it on the pile to the left of the basket. " * 160
TEXTS = {
    "latin-1": ("café".encode("latin-1"), r"caf\xe9"),
    "utf-16 with its mark": ("fold 毛巾".encode("utf-16"), "fold 毛巾"),
    "utf-8 with its mark": (b"\xef\xbb\xbffold", "fold"),
    "nul": (b"fo\0ld", "fo\0ld"),
    "emoji": ("🤖 fold 👨‍👩‍👧".encode(), "🤖 fold 👨‍👩‍👧"),
    "right to left": ("קפל את המגבת ‏(x)".encode(), "קפל את המגבת ‏(x)"),
    "10 kB": (LONG.encode(), LONG),
}


@pytest.mark.parametrize("name", list(TEXTS))
def test_a_task_in_any_encoding_comes_through_to_the_episode_file(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    data, expected = TEXTS[name]
    write_aloha(tmp_path / "set/a.hdf5", 60, task=np.void(data))
    bench = Bench.of(catalog, tmp_path / "set", tmp_path / "lake")
    bench.register()
    results = bench.through(bench.row(), "episodes")
    assert results["recordings"].rows["recordings"][0]["task"] == expected
    assert results["episodes"].status == "ok", results["episodes"]
    assert pa.array([expected]).to_pylist() == [expected]  # as the tables of the warehouse hold it
    (path,) = (tmp_path / "lake").rglob("*.mcap")
    with Episode.open(str(path)) as made:
        assert made.header.task == expected


def test_half_a_surrogate_pair_in_a_data_sets_task_is_spelled_out(catalog: Catalog, tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path / "set", [30])
    line = json.dumps({"episode_index": 0, "tasks": ["fo\ud800ld"], "length": 30})
    write_text(root / "meta/episodes.jsonl", line + "\n")
    bench = Bench.of(catalog, root, tmp_path / "lake")
    bench.register()
    found = bench.through(bench.row(), "recordings")["recordings"].rows["recordings"][0]
    assert found["task"] == r"fo\ud800ld"


REFUSED_MARKERS = {
    "latin-1": (
        lambda text: text.replace("TASK", "café").encode("latin-1"),
        r"not JSON .*can't decode byte 0xe9",
    ),
    "nul": (
        lambda text: text.replace("TASK", "fo\\u0000ld").encode(),
        r"task: 'fo\\x00ld' holds a NUL or half",
    ),
    "half a surrogate pair": (
        lambda text: text.replace("TASK", "\\ud800").encode(),
        r"holds a NUL or half a surrog",
    ),
    "100 kB": (
        lambda text: text.replace("TASK", "x" * 100_000).encode(),
        r"task: String should have at most 65536",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED_MARKERS))
def test_a_marker_whose_task_no_table_can_hold_is_refused(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    change, reason = REFUSED_MARKERS[name]
    bench = marked(catalog, tmp_path, change)
    bench.register()
    assert re.search(reason, bench.refusal("one"))


TAKEN_MARKERS = {
    "utf-16": (lambda text: text.replace("TASK", "叠毛巾").encode("utf-16"), "叠毛巾"),
    "emoji": (lambda text: text.replace("TASK", "🤖").encode(), "🤖"),
    "right to left": (lambda text: text.replace("TASK", "קפל").encode(), "קפל"),
    "10 kB": (lambda text: text.replace("TASK", LONG).encode(), LONG),
}


@pytest.mark.parametrize("name", list(TAKEN_MARKERS))
def test_a_markers_task_is_whole_in_the_warehouse_and_short_in_the_catalog(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    change, task = TAKEN_MARKERS[name]
    bench = marked(catalog, tmp_path, change)
    bench.register()
    (row,) = bench.episodes()
    assert len(row.task) <= MAX_TEXT and row.task[:400] == task[:400]
    found = bench.through(bench.row(), "recordings")["recordings"].rows["recordings"][0]
    assert found["task"] == task


def marked(catalog: Catalog, tmp_path: Path, change: Callable[[str], bytes]) -> Bench:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    commit_upload(tmp_path / "landing/one", **SAYS, task="TASK")
    marker = tmp_path / "landing/one/upload.json"
    bench = Bench.of(catalog, tmp_path / "landing", tmp_path / "lake")
    marker.write_bytes(change(marker.read_text()))
    return bench


# What may not be read


def test_a_folder_that_may_not_be_read_is_said_and_not_passed_over(catalog: Catalog, tmp_path: Path) -> None:
    with open_folder() as landing:
        for name in ("one", "two"):
            write_aloha(landing / name / "a.hdf5", 60)
        write_aloha(landing / "one/more/b.hdf5", 60)
        bench = Bench.of(catalog, landing, tmp_path / "lake")
        (landing / "one/more").chmod(0)
        catalog.sources()  # a connection that is open already
        with as_nobody():
            done = bench.register()
        (landing / "one/more").chmod(0o755)
    assert done.registered == {"lab: two": 1}
    assert re.search(
        r"/one/more: may not be listed \(Permission denied\); so nobody knows what the upload holds \(1 such\)\. Let "
        "this user read it",
        done.quarantined["lab: one"],
    )


def test_a_source_that_lacks_an_option_is_named_with_what_to_write(catalog: Catalog, tmp_path: Path) -> None:
    write_records(tmp_path / "set/a.tfrecord", [example(episode(0, 4))])
    done = Bench.of(catalog, tmp_path / "set", tmp_path / "lake").register()
    assert re.match(r"source 'lab': RLDS keeps no times: give the rate", done.unreachable["lab"])
