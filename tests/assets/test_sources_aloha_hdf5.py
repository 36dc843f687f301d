from __future__ import annotations

import io
import json
import resource
import zlib
from pathlib import Path
from typing import Any

import av
import h5py
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem
from recordings import number_in, still, write_aloha

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import ExtraRecording, Folder, Recording, RecordingRef
from dyna_assets.landing.sources import reader_named
from dyna_assets.landing.stills import decode_still

READER = reader_named("aloha_hdf5")
HIGH = "observations/images/cam_high"


def opened(path: Path) -> Recording:
    return READER.open(Folder.of(path.parent), RecordingRef(path.stem, (path.name,)))


def painted_number(payload: Any) -> int:
    return number_in(decode_still(payload) if isinstance(payload, bytes) else payload)


@pytest.mark.parametrize("raw", [False, True])
def test_every_topic_is_read_in_order_on_the_files_own_grid(tmp_path: Path, raw: bool) -> None:
    with opened(write_aloha(tmp_path / "ep.hdf5", 6, raw=raw, fps=25)) as recording:
        topics = [topic for topic, info in recording.topics.items() if info.kind != "other"]
        messages = list(recording.read(topics))
        for topic in topics:
            assert [m.time_ns for m in messages if m.topic == topic] == recording.times(topic).tolist()
            assert recording.times(topic).tolist() == [step * 40_000_000 for step in range(6)]
        assert [painted_number(m.payload) for m in messages if m.topic == HIGH] == list(range(6))
        assert [float(m.payload[0]) for m in messages if m.topic == "action"] == [3, 4, 5, 6, 7, 8]  # type: ignore[index]
        assert [m.time_ns for m in messages] == sorted(m.time_ns for m in messages)
        assert recording.topics[HIGH].encoding == ("rgb8" if raw else "jpeg")
        assert (recording.topics[HIGH].width, recording.topics[HIGH].height) == (64, 48)
        assert recording.topics["observations/qpos"].names == ("qpos_0", "qpos_1", "qpos_2", "qpos_3")


def test_padding_is_cut_off_and_the_rest_is_the_recorded_picture(tmp_path: Path) -> None:
    with opened(write_aloha(tmp_path / "ep.hdf5", 3)) as recording:
        assert [message.payload for message in recording.read([HIGH])] == [still(step) for step in range(3)]


def test_raw_pictures_are_frames_with_the_exact_pixels(tmp_path: Path) -> None:
    with opened(write_aloha(tmp_path / "ep.hdf5", 2, raw=True)) as recording:
        frame = list(recording.read([HIGH]))[1].payload
    assert isinstance(frame, av.VideoFrame)
    with h5py.File(tmp_path / "ep.hdf5") as file:
        assert (frame.to_ndarray(format="rgb24") == file[HIGH][1]).all()


def test_attributes_become_metadata(tmp_path: Path) -> None:
    path = write_aloha(
        tmp_path / "ep.hdf5",
        2,
        fps=50,
        task="hand over",
        success=np.bool_(True),
        robot=b"aloha-1",
        operator="kim",
        seed=7,
    )
    with opened(path) as recording:
        meta = recording.meta
        assert (meta.task, meta.success, meta.robot, meta.operator) == ("hand over", True, "aloha-1", "kim")
        assert meta.extra == {"seed": 7, "attributes": {}}


@pytest.mark.parametrize(
    ("said", "success"), [("False", False), (1, True), (0.0, False), ("unsure", None), (np.array([1]), True)]
)
def test_success_in_every_form_that_occurs(tmp_path: Path, said: object, success: bool | None) -> None:
    with opened(write_aloha(tmp_path / "ep.hdf5", 1, success=said)) as recording:
        assert recording.meta.success is success


def test_without_a_rate_alohas_fifty_hertz_are_taken_and_noted(tmp_path: Path) -> None:
    with opened(write_aloha(tmp_path / "ep.hdf5", 2)) as recording:
        assert recording.times("action").tolist() == [0, 20_000_000]
        assert list(recording.meta.notes) == [
            "no attribute fps, rate_hz, hz, frequency, control_frequency: took ALOHA's 50 Hz"
        ]


@pytest.mark.parametrize("fps", [0, -1, "1e999999999", "nan", "fast", 1e9])
def test_what_is_no_rate_is_refused_at_once(tmp_path: Path, fps: object) -> None:
    with pytest.raises(RecordingError, match=r"ep\.hdf5: attribute fps: "):
        opened(write_aloha(tmp_path / "ep.hdf5", 2, fps=fps))


def test_large_storage_chunks_are_read_once_and_in_order(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 2)
    stills = [still(step) for step in range(70)]
    size = max(map(len, stills))
    data = np.stack([np.frombuffer(one.ljust(size, b"\0"), np.uint8) for one in stills])
    with h5py.File(path, "a") as file:
        file.create_dataset("observations/images/cam_low", data=data, chunks=(32, size), compression="gzip")
    with opened(path) as recording:
        numbers = [
            painted_number(message.payload) for message in recording.read(["observations/images/cam_low"])
        ]
    assert numbers == list(range(70))


def test_pictures_of_varying_length_are_read(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 2)
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset("observations/images/cam_low", (3,), h5py.vlen_dtype(np.uint8))
        for step in range(3):
            dataset[step] = np.frombuffer(still(step), np.uint8)
    with opened(path) as recording:
        numbers = [
            painted_number(message.payload) for message in recording.read(["observations/images/cam_low"])
        ]
    assert numbers == [0, 1, 2]


def test_lengths_may_differ_and_every_topic_keeps_its_own(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 5)
    with h5py.File(path, "a") as file:
        del file["action"]
        file["action"] = np.zeros((3, 2))
    with opened(path) as recording:
        assert (len(recording.times("action")), len(recording.times(HIGH))) == (3, 5)
        assert len(list(recording.read(["action", HIGH]))) == 8


def test_datasets_of_another_shape_are_listed_and_refused(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 2)
    with h5py.File(path, "a") as file:
        file["observations/cloud"] = np.zeros((2, 4, 4, 4))
    with opened(path) as recording:
        assert recording.topics["observations/cloud"].kind == "other"
        with pytest.raises(
            RecordingError, match=r"'observations/cloud' \(float64 \[2, 4, 4, 4\]\) is neither"
        ):
            recording.times("observations/cloud")


def test_files_in_folders_below_are_recordings_too(tmp_path: Path) -> None:
    write_aloha(tmp_path / "b.h5", 1)
    write_aloha(tmp_path / "day/a.hdf5", 1)
    assert READER.recordings(Folder.of(tmp_path)) == [
        RecordingRef("b", ("b.h5",)),
        RecordingRef("day/a", ("day/a.hdf5",)),
    ]


def test_a_folder_without_hdf5_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(RecordingError, match=r"expected files \*\.hdf5 or \*\.h5, found 1 file \(1 \.txt\)"):
        READER.recordings(Folder.of(tmp_path))


@pytest.mark.parametrize("keep", [0, 100, 9_000])
def test_a_cut_file_is_refused_with_its_name(tmp_path: Path, keep: int) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 6)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        RecordingError, match=r"ep\.hdf5: not readable as HDF5 .*(signature not found|truncated file)"
    ):
        opened(path)


def test_another_hdf5_layout_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "ep.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros(3)
    with pytest.raises(RecordingError, match=r"expected ALOHA's datasets .*, found data/demo_0/actions"):
        opened(tmp_path / "ep.hdf5")


def test_a_picture_that_is_none_is_refused_by_topic(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 2)
    with h5py.File(path, "a") as file:
        file[HIGH][0] = 7
    with pytest.raises(
        RecordingError, match="topic 'observations/images/cam_high' frame 0: expected a JPEG or PNG"
    ):
        opened(path)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"ep\.hdf5: no such file; it was there when"):
        opened(tmp_path / "ep.hdf5")


def test_a_store_that_fails_is_not_blamed_on_the_recording(tmp_path: Path) -> None:
    class GoneStore(LocalFileSystem):
        def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
            return GoneFile(Path(path).read_bytes())

    class GoneFile(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            raise ConnectionResetError(104, "connection reset by the store")

    write_aloha(tmp_path / "ep.hdf5", 2)
    with pytest.raises(ConnectionResetError, match="reset by the store"):
        READER.open(Folder(GoneStore(), str(tmp_path)), RecordingRef("ep", ("ep.hdf5",)))


def with_more(path: Path, **datasets: Any) -> Path:
    """An episode of four steps with more datasets; '__' in a name stands for '/'."""
    write_aloha(path, 4)
    with h5py.File(path, "a") as file:
        for name, values in datasets.items():
            file[name.replace("__", "/")] = values
    return path


def kept(recording: Recording, *topics: str) -> list[tuple[str, int, Any]]:
    """(topic, time, value) of what is kept of the topics as JSON."""
    assert isinstance(recording, ExtraRecording)
    assert {topic.message_encoding for topic in recording.extra_topics(topics)} == {"json"}
    return [(raw.topic, raw.time_ns, json.loads(raw.data)["value"]) for raw in recording.extras(topics)]


def test_every_dataset_is_listed_also_in_groups_that_nobody_knows(tmp_path: Path) -> None:
    path = with_more(
        tmp_path / "ep.hdf5",
        base_action=np.zeros((4, 2)),
        sensors__force=np.zeros((4, 6), np.int16),
        sensors__grid=np.zeros((4, 3, 3)),
        calibration__matrix=np.eye(3),
        calibration__note="taped",
        nothing=h5py.Empty("f4"),
    )
    with opened(path) as recording:
        kinds = {name: (info.kind, info.num_messages) for name, info in recording.topics.items()}
        roles = READER.roles(recording)
    assert kinds.pop("base_action") == ("vector", 4)
    assert kinds.pop("sensors/force") == ("vector", 4)
    assert kinds.pop("sensors/grid") == ("other", 4)
    assert kinds.pop("calibration/matrix") == kinds.pop("calibration/note") == ("other", 1)
    assert kinds.pop("nothing") == ("other", 0)
    assert kinds.pop("compress_len") == ("other", 1)
    assert set(kinds) == {"action", HIGH, "observations/images/cam_left_wrist", *(
        f"observations/{name}" for name in ("qpos", "qvel", "effort")
    )}  # fmt: skip
    assert [name for name, _ in roles.actions] == ["action", "base_action"]
    assert [name for name, _ in roles.states] == ["qpos", "effort", "qvel", "force"]


def test_rows_without_a_role_are_kept_with_their_times_and_what_has_no_rows_at_the_start(
    tmp_path: Path,
) -> None:
    texts = np.array(["a", "b", "d", b"caf\xe9"], dtype=h5py.string_dtype())
    path = with_more(
        tmp_path / "ep.hdf5", say=texts, on=np.array([True, False, True, True]), matrix=np.eye(2), note="x"
    )
    with opened(path) as recording:
        rows = kept(recording, "say", "on", "matrix", "note", "action")
        assert [value for topic, _, value in rows if topic == "say"] == ["a", "b", "d", "caf\udce9"]
        assert [(time_ns, value) for topic, time_ns, value in rows if topic == "on"] == [
            (0, True), (20_000_000, False), (40_000_000, True), (60_000_000, True)
        ]  # fmt: skip
        assert [row for row in rows if row[0] in ("matrix", "note")] == [
            ("matrix", 0, [[1, 0], [0, 1]]),
            ("note", 0, "x"),
        ]
        assert [value for topic, _, value in rows if topic == "action"] == [[k] * 4 for k in (3, 4, 5, 6)]
        assert [time_ns for _, time_ns, _ in rows] == sorted(time_ns for _, time_ns, _ in rows)


def test_pictures_and_large_arrays_without_a_role_are_kept_byte_for_byte(tmp_path: Path) -> None:
    depth = np.arange(4 * 64 * 65, dtype=np.uint16).reshape(4, 64, 65)
    with opened(with_more(tmp_path / "ep.hdf5", depth=depth)) as recording:
        assert isinstance(recording, ExtraRecording)
        topics = {topic.topic: topic for topic in recording.extra_topics([HIGH, "depth"])}
        assert topics[HIGH].message_encoding == "jpeg"
        assert topics["depth"].message_encoding == "ndarray"
        assert topics["depth"].metadata == {"dtype": "<u2", "shape": "64,65"}
        raws = list(recording.extras([HIGH, "depth"]))
    assert [raw.data for raw in raws if raw.topic == HIGH] == [still(step) for step in range(4)]
    assert b"".join(raw.data for raw in raws if raw.topic == "depth") == depth.tobytes()


def test_attributes_of_groups_and_datasets_are_kept_by_path(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 2)
    with h5py.File(path, "a") as file:
        file["observations"].attrs["frame"] = "base"
        file["action"].attrs["names"] = ["a", "b"]
    with opened(path) as recording:
        assert recording.meta.extra["attributes"] == {
            "observations": {"frame": "base"},
            "action": {"names": ["a", "b"]},
        }


def test_values_in_other_files_are_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(range(16)))
    path = write_aloha(tmp_path / "ep.hdf5", 4)
    with h5py.File(path, "a") as file:
        file.create_dataset(
            "observations/outside", (4, 4), "u1", external=[(str(tmp_path / "secret"), 0, 16)]
        )
        layout = h5py.VirtualLayout((4, 4), "u1")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (4, 4))
        file.create_virtual_dataset("observations/virtual", layout)
        file["observations/linked"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
    names = [f"observations/{name}" for name in ("outside", "virtual", "linked")]
    with opened(path) as recording:
        assert isinstance(recording, ExtraRecording)
        for name in names:
            assert recording.topics[name].kind == "other"
            for ask in (recording.times, lambda topic: list(recording.read([topic]))):
                with pytest.raises(RecordingError, match=rf"'{name}' cannot be read: .*other file"):
                    ask(name)
            with pytest.raises(RecordingError, match=rf"'{name}' cannot be read: .*other file"):
                list(recording.extras([name]))
        assert len(list(recording.read(["action"]))) == 4


def test_sizes_that_no_memory_holds_are_refused_without_reading(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 4)
    with h5py.File(path, "a") as file:
        file.create_dataset("observations/long", (1 << 40, 7), "f8", chunks=(64, 7))
        file.create_dataset("observations/wide", (4, 1 << 40), "f8", chunks=(1, 1 << 20))
        file.create_dataset("observations/chunk", (4, 7), "f8", chunks=(1 << 26, 7), maxshape=(None, 7))
        file.create_dataset("observations/many", (4, 5000), "f8")
    with opened(path) as recording:
        for name in ("long", "wide", "chunk"):
            with pytest.raises(RecordingError, match=rf"'observations/{name}' cannot be read: .*expected"):
                recording.times(f"observations/{name}")
        assert recording.topics["observations/many"].kind == "other"


def test_a_chunk_that_unpacks_to_more_than_it_says_is_refused_before_it_fills_memory(tmp_path: Path) -> None:
    path = write_aloha(tmp_path / "ep.hdf5", 4)
    pack = zlib.compressobj(9)
    bomb = b"".join([*(pack.compress(bytes(1 << 20)) for _ in range(300)), pack.flush()])
    with h5py.File(path, "a") as file:
        for name, content in (
            ("bomb", bomb),
            ("swollen", bytes(4 << 20)),
            ("good", zlib.compress(bytes(range(200)) * 800)),
        ):
            made = file.create_dataset(name, (4, 80_000), "u1", chunks=(2, 80_000), compression="gzip")
            made[:] = 0
            made.id.write_direct_chunk((2, 0), content)
    with opened(path) as recording:
        assert isinstance(recording, ExtraRecording)
        assert len(list(recording.extras(["good"]))) == 4
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(
            RecordingError, match=r"the chunk at row 2 unpacks to more than the 160,000 bytes it holds"
        ):
            list(recording.extras(["bomb"]))
        with pytest.raises(
            RecordingError, match=r"the chunk at row 2 takes 4,194,304 bytes packed, and holds 160,000"
        ):
            list(recording.extras(["swollen"]))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
