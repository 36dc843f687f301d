"""H.264 packets of one GOP to the frames that are wanted of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import av
from av.video.codeccontext import VideoCodecContext

from dyna_train.errors import CorruptEpisode


def decode_gop(packets: Sequence[bytes | memoryview], *, what: str) -> Iterator[av.VideoFrame]:
    """The frames of `packets`, which start at a keyframe, in order; one decoder, one thread.

    Stop iterating, or hand in fewer packets, to decode less. Raises CorruptEpisode that starts with `what`.
    """
    context = av.CodecContext.create("h264", "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1
    num_frames = 0
    for frame in _decoded(context, packets, what):
        if frame.pts != num_frames:
            raise CorruptEpisode(
                f"{what}: the decoder gave frame {frame.pts} where frame {num_frames} should be"
            )
        num_frames += 1
        yield frame
    if num_frames != len(packets):
        raise CorruptEpisode(f"{what}: {len(packets)} packets gave {num_frames} frames")


def _decoded(
    context: VideoCodecContext, packets: Sequence[bytes | memoryview], what: str
) -> Iterator[av.VideoFrame]:
    try:
        for number, data in enumerate(packets):
            packet = av.Packet(bytes(data))
            packet.pts = packet.dts = number
            yield from context.decode(packet)
        yield from context.decode(None)
    except av.FFmpegError as error:
        raise CorruptEpisode(f"{what}: not decodable as H.264: {error}") from error
