"""Bad input ends as a quarantined upload or a rejected row, with a reason that a person can act on.

Uploads replaced during reading, names, topics and clocks; files are in test_bad_files, texts in test_bad_texts.

Through the real registration and the real step functions. Planted faults of the recorder are in test_path_faults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
import recordings as samples
from fsspec.implementations.local import LocalFileSystem
from lab import SAYS, Lab
from mcap.reader import make_reader
from mcap.writer import Writer
from recordings import T0_NS, write_aloha, write_mcap
from tf_records import episode, example, write_records

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.landing.profile import CameraRole
from dyna_assets.landing.upload import commit_upload
from dyna_assets.steps.attempt import attempt


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
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    lab.register()
    row = replace(lab.row(), upload_uri=f"replacing://{tmp_path}/set")
    if step == "episodes":
        tables = lab.through(lab.row(), "gate_before")["recordings"].rows
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
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    lab.register()
    row = replace(lab.row(), upload_uri=f"replacing://{tmp_path}/set")
    assert {result.status for result in lab.through(row).values()} == {"ok"}


def test_files_replaced_under_a_marker_that_stays_are_found_by_their_hashes(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    commit_upload(tmp_path / "landing/one", **SAYS)
    lab = Lab.of(catalog, tmp_path / "landing", tmp_path / "lake")
    assert lab.register().registered == {"lab: one": 1}
    another_file_of_the_same_size_and_time(tmp_path / "landing/one/a.hdf5")
    os.utime(tmp_path / "landing/one/a.hdf5")
    assert re.search(r"a\.hdf5: expected sha256 \w+, found", lab.register().quarantined["lab: one"])


# Names


def test_two_uploads_with_one_episode_name_the_second_is_refused_with_the_first(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_aloha(tmp_path / "set/x.hdf5", 60)
    write_aloha(tmp_path / "set/day/y.hdf5", 60)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    lab.register()
    assert {row.name for row in lab.episodes()} == {"x", "day/y"}
    commit_upload(tmp_path / "set/day", **SAYS)
    lab.register()
    assert re.search(
        r"upload 'day': recording 'day/y' came before, with another upload \(episode \d\)\. Names are unique within a "
        "source: rename it, or land it under another source",
        lab.refusal("day"),
    )


def test_a_wrong_topic_in_the_toml_names_the_topics_there_are_nearest_first(
    catalog: Catalog, tmp_path: Path
) -> None:
    write_mcap(tmp_path / "set/a.mcap", 60)
    camera = CameraRole(name="top", topic="/top/image/compresed")
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake", cameras=(camera,))
    lab.register()
    assert re.match(
        r"gate_before: topics\.present: camera 'top' \(/top/image/compresed\): not in the recording; topics there: "
        r"/top/image/compressed, .*\. Correct the source profile or the recorder",
        lab.rejection(),
    )


# Clocks


def test_a_clock_in_the_future_is_rejected(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "T0_NS", 2_100_000_000_000_000_000)  # the year 2036
    write_mcap(tmp_path / "set/a.mcap", 60)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    lab.register()
    assert re.match(
        r"gate_before: time\.future: the last capture is [\d,.]+ days in the future: the recorder's clock is wrong",
        lab.rejection(),
    )


def test_a_camera_that_appears_half_way_is_rejected(catalog: Catalog, tmp_path: Path) -> None:
    whole = write_mcap(tmp_path / "whole.mcap", 120)
    (tmp_path / "set").mkdir()
    with whole.open("rb") as source, (tmp_path / "set/a.mcap").open("wb") as target:
        copy_without(source, target, "/top/image/compressed", before_ns=T0_NS + 2_000_000_000)
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    lab.register()
    assert re.match(
        r"gate_before: time\.late_start: /top/image/compressed starts at 2\.0\d s, most topics by 0\.00 s: what came "
        "before is lost. Start the recorder when every sensor runs",
        lab.rejection(),
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


def test_a_source_that_lacks_an_option_is_named_with_what_to_write(catalog: Catalog, tmp_path: Path) -> None:
    write_records(tmp_path / "set/a.tfrecord", [example(episode(0, 4))])
    done = Lab.of(catalog, tmp_path / "set", tmp_path / "lake").register()
    assert re.match(r"source 'lab': RLDS keeps no times: give the rate", done.unreachable["lab"])
