"""H.264 packets of one GOP to the frames that are wanted of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import av
from av.video.codeccontext import VideoCodecContext

from dyna_train.errors import CorruptEpisode

# Left to itself the decoder paints over what it cannot decode and hands the frame out. "explode" makes most
# faults errors; "aggressive" adds a slice without CABAC that ends early. Of 150 single flipped bits, behind
# the checksum, 2 in 3 (train-fast) to 9 in 10 are found so. The others decode to another valid picture.
_FAULTS_ARE_ERRORS = {"err_detect": "explode+aggressive"}


def decode_gop(packets: Sequence[bytes | memoryview], *, what: str) -> Iterator[av.VideoFrame]:
    """The frames of `packets`, which start at a keyframe, in order; one decoder, one thread.

    A packet is decoded when its frame is asked for: stop, and go on later or never. Raises CorruptEpisode
    that starts with `what`, at the first frame that does not decode whole.
    """
    num_frames = 0
    for frame in _decoded(packets, what):
        if frame.pts != num_frames:
            raise CorruptEpisode(
                f"{what}: the decoder gave frame {frame.pts} where frame {num_frames} should be"
            )
        if frame.is_corrupt:
            raise CorruptEpisode(f"{what}: frame {num_frames} decodes in part only; fetch the file again")
        num_frames += 1
        yield frame
    if num_frames != len(packets):
        raise CorruptEpisode(f"{what}: {len(packets)} packets gave {num_frames} frames")


def _decoded(packets: Sequence[bytes | memoryview], what: str) -> Iterator[av.VideoFrame]:
    context = av.CodecContext.create("h264", "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1  # frame threads would hold frames back
    context.options = dict(_FAULTS_ARE_ERRORS)
    number = 0
    try:
        for number, data in enumerate(packets):
            if not len(data):  # which would mean the end to the decoder
                raise CorruptEpisode(f"{what}: frame {number} has no bytes; fetch the file again")
            # Without the copy a packet of 30 KB would take 0.5 us less, and hold all the bytes it lies in.
            packet = av.Packet(bytes(data))
            packet.pts = packet.dts = number
            yield from context.decode(packet)
        yield from context.decode(None)  # empty, unless a copied stream states a delay it does not use
    except av.FFmpegError as error:
        raise CorruptEpisode(f"{what}: frame {number} does not decode as H.264: {error}") from error
