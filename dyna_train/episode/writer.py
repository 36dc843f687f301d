"""Write one episode file: frames in, topic-group chunks out, published by rename."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from mcap.records import Message
from numpy.typing import NDArray

from dyna_train.episode.body import EpisodeBody, EpisodeFile, Vector
from dyna_train.episode.channels import ChannelPlan, ExtraTopic
from dyna_train.episode.container import McapSink
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.packets import PacketRules
from dyna_train.episode.profile import (
    EVENT_TOPIC,
    MAX_NS,
    PROFILE,
    RECORD_EPISODE,
    RECORD_PROFILE,
    RECORD_VERSIONS,
    EpisodeHeader,
    episode_records,
)
from dyna_train.episode.queues import CameraQueue, DepthQueue
from dyna_train.episode.schemas import Event, encode_event
from dyna_train.episode.values import is_whole
from dyna_train.errors import BadInput
from dyna_train.files import publish
from dyna_train.video.encode import CameraEncoder, Quality

__all__ = ["EpisodeFile", "EpisodeWriter", "Event", "ExtraTopic", "Vector"]


class EpisodeWriter:
    """Writes one episode file; use as a context manager and call `finish` before leaving it.

    Until `finish` returns nothing stands under the final path, whatever happens to the process.
    """

    def __init__(self, path: Path, body: EpisodeBody, resources: ExitStack) -> None:
        self._path = path
        self._body = body
        self._header = body.header
        self._resources = resources
        self._rules = {
            name: PacketRules(queue.track, body.layout.gop) for name, queue in body.cameras.items()
        }
        self._finished = False

    @classmethod
    def create(
        cls,
        path: str | Path,
        header: EpisodeHeader,
        layout: EpisodeLayout,
        *,
        quality: Quality,
        vectors: Mapping[str, Vector],
        copied: Mapping[str, str] | None = None,
        events: Sequence[Event] = (),
        extras: Sequence[ExtraTopic] = (),
        watch: Mapping[str, Callable[[int, av.VideoFrame], None]] | None = None,
        is_new: bool = False,
    ) -> EpisodeWriter:
        """Start a file that will appear under the local `path`.

        quality: one of `QUALITIES`, or your own. vectors: for every vector topic of the header its values
        float32 [T, D] and capture times int64 [T] ns, T = num_steps. copied: by name, the codec
        parameters of a camera that is not encoded here. extras: topics for `add_extra`. watch: by camera name, who is
        shown what is encoded, see `CameraEncoder`. is_new: never replace a file, see `publish`. Raises BadInput
        naming the topic.
        """
        _check_vectors(header, vectors)
        copies = dict(copied or {})
        channels = ChannelPlan.of(header, layout, quality, copies, extras, has_events=bool(events))
        due = _event_messages(path, events, channels)
        cameras = {}
        for track in header.cameras:
            encoder = None
            if track.name not in copies:
                encoder = CameraEncoder(
                    track.name,
                    track.width,
                    track.height,
                    rate_hz=header.rate_hz,
                    gop=layout.gop,
                    quality=quality,
                    watch=(watch or {}).get(track.name),
                )
            cameras[track.name] = CameraQueue(track, channels.ids[track.topic], encoder)
        depths = {track.name: DepthQueue(track, channels.ids[track.topic]) for track in header.depths}
        with ExitStack() as resources:
            part = resources.enter_context(publish(path, is_new=is_new))
            sink = McapSink(resources.enter_context(part.open("wb")))
            sink.begin("", PROFILE, channels.schemas, channels.channels)
            records = episode_records(header, layout)
            for name in (RECORD_PROFILE, RECORD_VERSIONS, RECORD_EPISODE):
                sink.add_metadata(name, records[name])  # a file that is cut short still knows whose it is
            body = EpisodeBody(sink, header, layout, channels, cameras, depths, vectors, due)
            return cls(Path(path), body, resources.pop_all())

    def add_frame(self, camera: str, frame: av.VideoFrame, capture_ns: int) -> None:
        """The frame of the next step of camera `camera` (a name).

        frame: any pixel format, of the camera's width x height; left as it was. capture_ns: when it was
        taken, ns since the epoch. Cameras may run ahead of each other: encoded packets wait in memory.
        Raises BadInput naming camera and step.
        """
        queue = self._camera(camera)
        self._check_next(queue, capture_ns)
        step, track = queue.num_fed, queue.track
        if queue.encoder is None:
            raise BadInput(f"{self._path}: camera {camera} is copied: add its packets by add_packet")
        if (frame.width, frame.height) != (track.width, track.height):
            raise BadInput(
                f"{self._path}: camera {camera}, step {step}: frame of {frame.width}x{frame.height}, "
                f"expected {track.width}x{track.height}; resize it or correct the header"
            )
        queue.fed_to_encoder(queue.encoder.encode(frame, step), int(capture_ns))
        self._body.write_ready()

    def add_packet(self, camera: str, packet: bytes, capture_ns: int) -> None:
        """The next step of a copied camera: one Annex B access unit.

        The first packet of every GOP holds SPS, PPS and an IDR picture, and no other one does. The pictures
        are as `CameraTrack` and every reader have them: its size, 4:2:0, 8 bit, limited range, whole frames,
        I and P slices, none left out. Raises BadInput naming camera and step.
        """
        queue = self._camera(camera)
        self._check_next(queue, capture_ns)
        if queue.encoder is not None:
            raise BadInput(f"{self._path}: camera {camera} is encoded here: name it in `copied` to copy it")
        self._check_packet(queue, packet)
        queue.fed_packet(bytes(packet), int(capture_ns))
        self._body.write_ready()

    def add_depth(self, depth: str, picture_HW: NDArray[np.uint16], capture_ns: int) -> None:
        """The picture of the next step of depth camera `depth` (a name), uint16 [H, W].

        Raises BadInput naming camera and step.
        """
        queue = self._depth(depth)
        self._check_next(queue, capture_ns)
        shape = (queue.track.height, queue.track.width)
        if picture_HW.dtype != np.uint16 or picture_HW.shape != shape:
            raise BadInput(
                f"{self._path}: depth camera {depth}, step {queue.num_fed}: {picture_HW.dtype} "
                f"{list(picture_HW.shape)}, expected uint16 {list(shape)}"
            )
        queue.pictures[queue.num_fed] = picture_HW.astype("<u2", copy=False).tobytes()
        queue.capture_ns.append(int(capture_ns))
        self._body.write_ready()

    def skip_steps(self, camera: str, num_steps: int = 1) -> None:
        """The next steps of camera `camera` have no frame; the file records the gap."""
        self._skip(self._camera(camera), num_steps)

    def skip_depth(self, depth: str, num_steps: int = 1) -> None:
        """The next steps of depth camera `depth` have no picture."""
        self._skip(self._depth(depth), num_steps)

    def add_extra(self, topic: str, log_ns: int, publish_ns: int, data: bytes, sequence: int = 0) -> None:
        """One message of an extra topic, untouched.

        Raises BadInput for a topic that was not declared, for times that do not fit int64, and for no bytes.
        """
        channel = self._body.channels.extra_id(topic)
        limits = ((log_ns, MAX_NS), (publish_ns, MAX_NS), (sequence, (1 << 32) - 1))
        if not all(is_whole(number) and 0 <= number <= most for number, most in limits):
            raise BadInput(
                f"{self._path}: {topic}: log time {log_ns}, publish time {publish_ns}, sequence {sequence}; "
                "expected whole numbers from 0, 63 bits for the times (ns) and 32 for the sequence"
            )
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BadInput(f"{self._path}: {topic}: a message of {type(data).__name__}, expected bytes")
        self._body.add_extra(
            Message(
                channel_id=channel, sequence=sequence, log_time=log_ns, publish_time=publish_ns, data=data
            )
        )

    def finish(self, quality: Mapping[str, str] | None = None) -> EpisodeFile:
        """Write what is left, publish the file and describe it. quality: verdicts to add to the header's.

        Raises BadInput naming the camera and step if a camera has fewer frames than the header's steps.
        """
        cameras = self._body.cameras.values()
        queues: list[CameraQueue | DepthQueue] = [*cameras, *self._body.depths.values()]
        for queue in queues:
            if queue.num_fed < self._header.num_steps:
                raise BadInput(
                    f"{self._path}: {queue.what} ends before step {queue.num_fed}; expected "
                    f"{self._header.num_steps} frames. No file was written. If the camera stopped, say so: "
                    "skip_steps"
                )
        for camera in cameras:
            camera.came_out(camera.encoder.flush() if camera.encoder else [])
        self._body.write_ready()
        made = self._body.end(self._path, quality or {})
        self._finished = True
        self._resources.close()
        return made

    def __enter__(self) -> EpisodeWriter:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Discard the file unless it is finished. Raises RuntimeError if it was left without `finish`."""
        if self._finished:
            return
        if error is None:
            error = RuntimeError(
                f"{self._path}: EpisodeWriter was left without finish(); no file was written"
            )
            self._resources.__exit__(type(error), error, None)
            raise error
        self._resources.__exit__(kind, error, trace)

    def _camera(self, name: str) -> CameraQueue:
        self._header.tracks.camera(name, where=str(self._path))
        return self._body.cameras[name]

    def _depth(self, name: str) -> DepthQueue:
        self._header.tracks.depth(name, where=str(self._path))
        return self._body.depths[name]

    def _check_next(self, queue: CameraQueue | DepthQueue, capture_ns: int) -> None:
        """Refuse a frame after the last step, and one from before the epoch."""
        num_steps = self._header.num_steps
        if queue.num_fed == num_steps:
            raise BadInput(
                f"{self._path}: {queue.what}: frame for step {num_steps}, expected {num_steps} frames in all"
            )
        where = f"{self._path}: {queue.what}, step {queue.num_fed}: capture time {capture_ns} ns"
        if not is_whole(capture_ns):
            raise BadInput(f"{where} is no whole number")
        if not 0 <= capture_ns <= MAX_NS:
            raise BadInput(f"{where} {'is negative' if capture_ns < 0 else 'does not fit int64'}")

    def _check_packet(self, queue: CameraQueue, packet: bytes) -> None:
        """Refuse a packet that a reader could not show, or would show wrong."""
        step, gop = queue.num_fed, self._body.layout.gop
        starts = step // gop != queue.last_frame // gop
        fault = self._rules[queue.track.name].fault(packet, starts_gop=starts)
        if fault:
            raise BadInput(f"{self._path}: {queue.what}, step {step}: {fault}")

    def _skip(self, queue: CameraQueue | DepthQueue, num_steps: int) -> None:
        if not (is_whole(num_steps) and 0 <= num_steps <= self._header.num_steps - queue.num_fed):
            raise BadInput(
                f"{self._path}: {queue.what}: {num_steps} steps without a frame from step "
                f"{queue.num_fed} on leave the {self._header.num_steps} steps of the episode"
            )
        queue.skip(num_steps)
        self._body.write_ready()


def _check_vectors(header: EpisodeHeader, vectors: Mapping[str, Vector]) -> None:
    expected = {track.topic: track for track in header.vectors}
    if set(vectors) != set(expected):
        raise BadInput(
            f"episode {header.episode_id}: vectors for {sorted(vectors)}, the header has {sorted(expected)}"
        )
    for topic, (values_TD, capture_T) in vectors.items():
        shape = (header.num_steps, expected[topic].dim)
        if values_TD.shape != shape or values_TD.dtype != np.float32:
            raise BadInput(
                f"episode {header.episode_id}, {topic}: values are {values_TD.dtype} "
                f"{list(values_TD.shape)}, expected float32 {list(shape)}"
            )
        if capture_T.shape != shape[:1] or capture_T.dtype != np.int64 or (capture_T < 0).any():
            raise BadInput(
                f"episode {header.episode_id}, {topic}: capture times are {capture_T.dtype} "
                f"{list(capture_T.shape)}, expected int64 [{header.num_steps}] of ns, none negative"
            )


def _event_messages(path: str | Path, events: Sequence[Event], channels: ChannelPlan) -> list[Message]:
    """In order of log time. Raises BadInput for a time that does not fit int64, and for what JSON cannot say."""
    messages = []
    for event in events:
        capture_ns = event.time_ns if event.capture_ns is None else event.capture_ns
        for what, time_ns in (("at", event.time_ns), ("captured at", capture_ns)):
            if not (is_whole(time_ns) and 0 <= time_ns <= MAX_NS):
                raise BadInput(f"{path}: event {event.name!r} {what} {time_ns!r} ns, expected 0 to {MAX_NS}")
        messages.append(
            Message(
                channel_id=channels.ids[EVENT_TOPIC],
                sequence=0,
                log_time=event.time_ns,
                publish_time=capture_ns,
                data=encode_event(event),
            )
        )
    return sorted(messages, key=lambda message: message.log_time)
