"""Empty files, paths out of the upload, sizes that no memory holds, folders that may not be read."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from bag_samples import write_bag
from lab import OPTIONS, SAYS, WRITERS, Lab
from mcap.reader import make_reader
from mcap.writer import CompressionType
from recordings import change_info, write_aloha, write_lerobot_v21, write_mcap
from unprivileged import as_nobody, open_folder

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.landing.upload import commit_upload


def commit(folder: Path, change: Callable[[str], bytes] | None = None) -> None:
    """Commit the folder; change: what becomes of the marker's text."""
    commit_upload(folder, **SAYS)
    if change is not None:
        marker = folder / "upload.json"
        marker.write_bytes(change(marker.read_text()))


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
    lab = Lab.of(catalog, root, tmp_path / "lake", **OPTIONS.get(kind, {}))
    path = root / file.format(bag=root.name)
    assert path.stat().st_size > 0
    path.write_bytes(b"")
    lab.register()
    found = lab.refusal() if level == "upload" else lab.rejection()
    assert re.search(reason, found), found
    assert len(found) > 30


def test_an_empty_metadata_file_of_a_bag_is_named_and_the_bag_read_without(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_bag(tmp_path / "set", "db3", range(60))
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    (tmp_path / "set/metadata.yaml").write_bytes(b"")
    assert lab.register().notes == [
        "lab: .: 1 of 1 bags have no metadata.yaml, first set",
        "lab: .: 1 files are read by nobody, first metadata.yaml; name them under the source's 'ignore'",
    ]


def test_an_empty_marker_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    lab = Lab.of(catalog, tmp_path / "landing", tmp_path / "lake")
    (tmp_path / "landing/one/upload.json").write_bytes(b"")
    lab.register()
    assert re.search(
        r"upload\.json: not JSON .*; 0 bytes\. Write the marker in one piece", lab.refusal("one")
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
    lab = Lab.of(catalog, tmp_path / "landing", tmp_path / "lake")
    lab.register()
    expected = {
        "file": r"link\.hdf5 is a link to .*elsewhere/secret\.hdf5, outside the upload's folder",
        "folder": r"link\.hdf5: is a link to a folder outside, .*/elsewhere, which is not followed; so nobody knows",
        "nothing": r"link\.hdf5: is a link to .*/gone, where nothing is; so nobody knows",
    }
    assert re.search(expected[what], lab.refusal("one"))
    assert lab.episodes() == []


def test_paths_with_dots_out_of_the_upload_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    commit(tmp_path / "landing/one", lambda text: text.replace('"a.hdf5"', '"../../a.hdf5"').encode())
    lab = Lab.of(catalog, tmp_path / "landing", tmp_path / "lake")
    lab.register()
    assert (
        "../../a.hdf5: expected a path inside the upload's folder, found one that leaves it"
        in lab.refusal("one")
    )


@pytest.mark.parametrize("path", ["../../{episode_index}.parquet", "/etc/{episode_index}.parquet"])
def test_metadata_that_leads_out_of_the_upload_is_refused(
    catalog: Catalog, tmp_path: Path, path: str
) -> None:
    root = write_lerobot_v21(tmp_path / "set", [30])
    lab = Lab.of(catalog, root, tmp_path / "lake")
    change_info(root, data_path=path)
    lab.register()
    assert re.search(r"info\.json: path template .* leads out of the data set", lab.refusal())


def test_a_data_set_inside_hdf5_that_lies_in_another_file_is_never_read(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "set/a.hdf5", 60)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    (tmp_path / "secret").write_bytes(bytes(60 * 4))
    with h5py.File(tmp_path / "set/a.hdf5", "a") as file:
        del file["action"]
        file.create_dataset("action", (60, 4), "u1", external=[(str(tmp_path / "secret"), 0, 240)])
    lab.register()
    assert re.match(
        r"gate_before: topics\.present: action 'action' \(action\): its values lie in other files",
        lab.rejection(),
    )


# Sizes


def test_a_chunk_that_says_it_unpacks_to_a_terabyte_is_refused_before_it_is(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = write_mcap(tmp_path / "set/a.mcap", 30, compression=CompressionType.ZSTD)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    patch(path, summary.chunk_indexes[0].chunk_start_offset + 9 + 16, 1 << 40)
    lab.register()
    assert re.search(
        r"a\.mcap: damaged at byte [\d,]+: a chunk says it holds 1,099,511,627,776 bytes unpacked, expected at most",
        lab.rejection(),
    )


def test_a_message_that_says_it_is_larger_than_any_memory_is_refused(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = write_mcap(tmp_path / "set/a.mcap", 30, use_chunking=False)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    patch(path, first_message(path.read_bytes()) + 1, 1 << 50)
    lab.register()
    assert re.search(
        r"a\.mcap: damaged at byte [\d,]+: .* 1,125,899,906,842,6\d\d bytes, the file ends at",
        lab.rejection(),
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
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    with h5py.File(tmp_path / "set/a.hdf5", "a") as file:
        del file["action"]
        file.create_dataset("action", (1 << 40, 4), "f4", chunks=(64, 4))
    lab.register()
    assert re.search(
        r"action: says that it has 1,099,511,627,776 rows|says that it has [\d,]+ rows", lab.rejection()
    )


# What may not be read


def test_a_folder_that_may_not_be_read_is_said_and_not_passed_over(catalog: Catalog, tmp_path: Path) -> None:
    with open_folder() as landing:
        for name in ("one", "two"):
            write_aloha(landing / name / "a.hdf5", 60)
        write_aloha(landing / "one/more/b.hdf5", 60)
        lab = Lab.of(catalog, landing, tmp_path / "lake")
        (landing / "one/more").chmod(0)
        catalog.sources()  # a connection that is open already
        with as_nobody():
            done = lab.register()
        (landing / "one/more").chmod(0o755)
    assert done.registered == {"lab: two": 1}
    assert re.search(
        r"/one/more: may not be listed \(Permission denied\); so nobody knows what the upload holds \(1 such\)\. Let "
        "this user read it",
        done.quarantined["lab: one"],
    )
