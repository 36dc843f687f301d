"""Simulated teleoperation uploads in a landing folder: raw ROS 2 MCAP files and their commit markers."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from mcap_ros2.writer import Writer
from PIL import Image

from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import (
    MARKER,
    UploadedFile,
    UploadMarker,
    commit_upload,
    read_marker,
    sha256_of,
)
from dyna_assets.simulate.faults import Listing, describe_fault, plant
from dyna_assets.simulate.paint import paint_number
from dyna_assets.simulate.plan import CameraTrack, JointTrack, RecordingPlan, Stream, Track, plan_recording
from dyna_assets.simulate.render import CAMERAS, Size, Studio, damage, expose, film
from dyna_train.errors import BadInput
from dyna_train.files import publish

JPEG_QUALITY = 80
CHUNK_BYTES = 768 << 10

_HEADER = (
    f"{'=' * 80}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    f"{'=' * 80}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)
_IMAGE = "std_msgs/Header header\nstring format\nuint8[] data\n" + _HEADER
_JOINTS = (
    "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n"
    + _HEADER
)


@dataclass(frozen=True, slots=True)
class RecordedUpload:
    """One upload. fault: the planted one or ''. num_frames: pictures of all cameras.

    is_new: False if it was committed before and has been left as it is.
    """

    name: str
    path: Path
    success: bool
    fault: str
    num_frames: int
    is_new: bool


def record_uploads(
    landing: str | Path,
    num: int,
    *,
    seed: int = 0,
    start: int = 0,
    seconds: float = 6.0,
    size: Size = (240, 320),
    faults: Sequence[str] = (),
    source: str = "sim",
    paint: bool = False,
    progress: Callable[[RecordedUpload], None] | None = None,
) -> list[RecordedUpload]:
    """Record episodes `start` to `start + num` of `seed` into folders below `landing`.

    seconds: rough length of an episode.  size: (height, width) of the pictures.  faults: names of faults, with
    or without a strength ('dark_camera:0.8'), planted in the last uploads, one each.  paint: every picture
    carries its number within its topic, see `simulate.paint`.  progress: called after each upload.

    The same arguments give the same bytes.  An upload that is committed already is left as it is, whatever
    the other arguments; a folder without a marker is an interrupted recording and is recorded again.
    Raises BadInput for an unknown fault, more faults than uploads, or a length or size out of range.
    """
    _refuse(num, seconds, size, faults, source, paint)
    planted = [""] * (num - len(faults)) + list(faults)
    uploads: list[RecordedUpload] = []
    for index, fault in enumerate(planted, start):
        name = f"{source}-{seed}-{index:06d}" + (f"-{fault.replace(':', '-')}" if fault else "")
        path = Path(landing) / name
        if not (path / MARKER).exists():
            plan = plant(fault, plan_recording(name, seed, index, seconds))
            _record(path, plan, size, source=source, fault=fault, paint=paint)
            uploads.append(RecordedUpload(name, path, plan.world.success, fault, plan.num_frames, True))
        else:
            uploads.append(_recorded_before(name, path))
        if progress is not None:
            progress(uploads[-1])
    return uploads


def _refuse(num: int, seconds: float, size: Size, faults: Sequence[str], source: str, paint: bool) -> None:
    """Everything that can be found out before the first byte is written."""
    for fault in faults:
        describe_fault(fault)
    if len(faults) > num:
        raise BadInput(
            f"{len(faults)} faults for {num} uploads: each fault needs an upload; record {len(faults)}"
        )
    if seconds < 0.5:
        raise BadInput(f"an episode of {seconds:g} s is too short to hand over a cube; record 0.5 s or more")
    if min(size) < 32 or size[0] % 2 or size[1] % 2:
        raise BadInput(f"pictures of {size[1]}x{size[0]}: expected even numbers from 32 up, such as 320x240")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", source):
        raise BadInput(f"source name '{source}' cannot name a folder: use letters, digits, '_', '.' and '-'")
    if paint:
        paint_number(np.zeros((*size, 3), np.uint8), 0)


def _recorded_before(name: str, path: Path) -> RecordedUpload:
    marker = read_marker(Folder.of(path))
    facts = marker.metadata
    if not {"planted_fault", "num_frames"} <= facts.keys():
        raise BadInput(
            f"{path / MARKER}: this upload of source '{marker.source}' was not recorded by the simulator. "
            "Record into another landing folder, or under another source name"
        )
    success, fault = marker.outcome == "success", str(facts["planted_fault"])
    return RecordedUpload(name, path, success, fault, int(str(facts["num_frames"])), is_new=False)


def _record(path: Path, plan: RecordingPlan, size: Size, *, source: str, fault: str, paint: bool) -> None:
    """The recording first, its marker last: until then the folder is no upload."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / f"{plan.name}.mcap"
    write_recording(file, plan, size, paint=paint)
    plant(fault, file)
    says: dict[str, Any] = {
        "source": source,
        "robot": plan.metadata["robot"],
        "task": plan.metadata["task"],
        "robot_software_version": plan.metadata["robot_software_version"],
        "kind": "simulation",
        "outcome": "success" if plan.world.success else "failure",
        "metadata": {
            "operator": plan.metadata["operator"],
            "seed": plan.metadata["seed"],
            "num_frames": plan.num_frames,
            "planted_fault": fault,
        },
    }
    listing: Listing = (
        UploadedFile(
            path=file.name, size_bytes=file.stat().st_size, sha256=sha256_of(Folder.of(path), file.name)
        ),
    )
    if (wrong := plant(fault, listing)) == listing:
        commit_upload(path, recorded_at=plan.start_ns, **says)
    else:  # no honest commit lists files that are not so
        marker = UploadMarker(files=wrong, recorded_at=plan.start_ns, **says)
        with publish(path / MARKER) as part:
            part.write_text(marker.model_dump_json(indent=1, by_alias=True) + "\n", encoding="utf-8")


def write_recording(file: Path, plan: RecordingPlan, size: Size, *, paint: bool = False) -> None:
    """Write `plan` as a raw ROS 2 MCAP: messages in order of arrival, all topics in the same chunks.

    log_time is the arrival at the recorder; publish_time and header.stamp are the capture.
    """
    studio = Studio.build(plan.world.scene, size, plan.rng(Stream.STUDIO))
    payloads = {
        track.topic: _pictures(track, plan, studio, paint=paint)
        if isinstance(track, CameraTrack)
        else _joints(track)
        for track in plan.tracks
    }
    with file.open("wb") as stream, Writer(stream, chunk_size=CHUNK_BYTES) as writer:
        image = writer.register_msgdef("sensor_msgs/msg/CompressedImage", _IMAGE)
        joints = writer.register_msgdef("sensor_msgs/msg/JointState", _JOINTS)
        for arrival_ns, number, track in _by_arrival(plan.tracks):
            capture_ns = int(track.capture_ns_N[number])
            stamp = {"sec": capture_ns // 10**9, "nanosec": capture_ns % 10**9}
            message = {"header": {"stamp": stamp, "frame_id": track.frame_id}, **next(payloads[track.topic])}
            schema = image if isinstance(track, CameraTrack) else joints
            writer.write_message(track.topic, schema, message, arrival_ns, capture_ns, number)
        writer.add_metadata("episode", dict(plan.metadata))


def _by_arrival(tracks: Sequence[Track]) -> Iterator[tuple[int, int, Track]]:
    """(arrival in ns, number within the topic, track) of every message, by arrival."""
    lines = [
        [(arrival, order, number) for number, arrival in enumerate(track.arrival_ns_N.tolist())]
        for order, track in enumerate(tracks)
    ]
    for arrival_ns, order, number in heapq.merge(*lines):
        yield arrival_ns, number, tracks[order]


def _pictures(
    track: CameraTrack, plan: RecordingPlan, studio: Studio, *, paint: bool
) -> Iterator[dict[str, Any]]:
    rng = plan.rng(Stream.PICTURES, CAMERAS.index(track.camera))
    repeats = np.r_[False, track.shot_s_N[1:] == track.shot_s_N[:-1]]
    data = b""
    shots = film(studio, plan.world, track.camera, track.shot_s_N[~repeats])
    for number, repeated in enumerate(repeats.tolist()):
        if not repeated:
            rgb = expose(studio, next(shots), rng, track.optics)
            if track.damage_N is not None and track.damage_N[number]:
                damage(rgb, float(track.damage_N[number]), rng)
            if paint:
                paint_number(rgb, number)
            data = _jpeg(Image.fromarray(rgb))
        yield {"format": "jpeg", "data": data}


def _jpeg(picture: Image.Image) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def _joints(track: Track) -> Iterator[dict[str, Any]]:
    if not isinstance(track, JointTrack):
        raise TypeError(
            f"{track.topic}: a track of pictures or joints is expected, found {type(track).__name__}"
        )
    names = list(track.names)
    values = (track.position_ND.tolist(), track.velocity_ND.tolist(), track.effort_ND.tolist())
    for position, velocity, effort in zip(*values, strict=True):
        yield {"name": names, "position": position, "velocity": velocity, "effort": effort}
