"""H.264 streams made with x264 at chosen settings, for the tests of NAL units and of copying."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from dyna_train.video.coded import Appearance, CodedVideo, Packet

WIDTH, HEIGHT, RATE = 96, 64, 30
CLOSED = "scenecut=0:open-gop=0:bframes=0:threads=1:lookahead-threads=1"


def closed(gop: int, more: str = "") -> str:
    """x264's settings for closed GOPs of one length without B-frames."""
    return f"keyint={gop}:min-keyint={gop}:{CLOSED}" + (f":{more}" if more else "")


def picture(number: int, width: int = WIDTH, height: int = HEIGHT) -> NDArray[np.uint8]:
    """A moving gradient with a block that jumps, uint8 [H, W, 3]."""
    rows, columns = np.mgrid[:height, :width]
    red = (columns * 2 + number * 5) % 256
    grey = np.stack([red, (rows * 3 + number * 2) % 256, (rows + columns) % 256], axis=-1).astype(np.uint8)
    at = number * 7 % max(1, width - 16)
    grey[8:24, at : at + 16] = 255 - grey[8:24, at : at + 16]
    return grey


@dataclass(frozen=True)
class Stream:
    """packets: Annex B (or what the encoder gives), in decoding order; pts of each; extradata."""

    packets: list[bytes]
    pts: list[int]
    keyframes: list[bool]
    extradata: bytes


def frame_of(number: int, width: int, height: int, pixel_format: str) -> av.VideoFrame:
    """The picture in the encoder's pixel format."""
    frame = av.VideoFrame.from_ndarray(picture(number, width, height), "rgb24").reformat(format=pixel_format)
    frame.pts, frame.time_base = number, Fraction(1, RATE)
    return frame


def encode(
    num_frames: int,
    x264_params: str,
    *,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    pixel_format: str = "yuv420p",
    codec: str = "libx264",
    options: Mapping[str, str] | None = None,
    **context_fields: Any,
) -> Stream:
    """num_frames pictures through x264."""
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height = size
    context.pix_fmt, context.framerate, context.time_base = pixel_format, Fraction(RATE), Fraction(1, RATE)
    for name, value in context_fields.items():
        setattr(context, name, value)
    context.options = {"preset": "veryfast", "crf": "20", "x264-params": x264_params, **(options or {})}
    packets = []
    for number in range(num_frames):
        packets += context.encode(frame_of(number, *size, pixel_format))
    packets += context.encode(None)
    return Stream(
        [bytes(packet) for packet in packets],
        [int(packet.pts or 0) for packet in packets],
        [packet.is_keyframe for packet in packets],
        bytes(context.extradata or b""),
    )


def write_mp4(
    path: Path,
    num_frames: int,
    x264_params: str,
    *,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    pixel_format: str = "yuv420p",
    codec: str = "libx264",
    pts: Sequence[int] | None = None,
    movflags: str = "",
    options: Mapping[str, str] | None = None,
    **stream_fields: Any,
) -> Path:
    """The same pictures in a container; pts in ticks of 1 / (512 RATE), 512 apart unless given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as container:
        stream = container.add_stream(codec, rate=RATE)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height = size
        stream.pix_fmt = pixel_format
        stream.time_base = stream.codec_context.time_base = Fraction(1, 512 * RATE)
        for name, value in stream_fields.items():
            setattr(stream.codec_context, name, value)
        settings = {"x264-params": x264_params} if codec == "libx264" else {}
        stream.options = {"preset": "veryfast", "crf": "20", **settings, **(options or {})}
        for number in range(num_frames):
            frame = frame_of(number, *size, pixel_format)
            frame.pts, frame.time_base = pts[number] if pts else number * 512, stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def remux(source_path: Path, path: Path, *, angle: int = 0) -> Path:
    """The same packets in another container; angle: degrees by which it turns the picture."""
    with av.open(str(source_path)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        if angle:
            stream.set_display_rotation(angle)
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    return path


def decoded(path: Path) -> list[NDArray[Any]]:
    """The planes of every frame of a video file as a plain decode shows them."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray() for frame in container.decode(video=0)]


def coded(path: Path) -> CodedVideo:
    """The packets of a video file."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        shown = Appearance.of(next(container.decode(stream)))
        return CodedVideo(
            context.codec.canonical_name, bytes(context.extradata or b""), shown, lambda: packets_of(path)
        )


def packets_of(path: Path) -> Iterator[Packet]:
    with av.open(str(path)) as container:
        for packet in container.demux(video=0):
            if packet.size:
                assert packet.pts is not None
                yield Packet(bytes(packet), packet.pts, packet.is_keyframe, packet.is_discard)


def from_memory(stream: Stream, extradata: bytes = b"", **changes: Any) -> CodedVideo:
    """An Annex B stream out of no container."""
    decoder = av.CodecContext.create("h264", "r")
    frames = [frame for data in stream.packets for frame in decoder.decode(av.Packet(data))]  # type: ignore[attr-defined]
    frames += decoder.decode(None)  # type: ignore[attr-defined]
    packets = [Packet(*parts) for parts in zip(stream.packets, stream.pts, stream.keyframes, strict=True)]
    shown = replace(Appearance.of(frames[0]), **changes)
    return CodedVideo("h264", extradata, shown, lambda: iter(packets))
