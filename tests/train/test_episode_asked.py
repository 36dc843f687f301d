"""What readers may be asked: step numbers, sizes, arrays to write into. Anything else is refused in words."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_samples import LAYOUT, header, paint, vectors_of, write_painted
from mcap.opcode import Opcode

from dyna_train.episode.container import MESSAGE_HEAD_BYTES, RECORD_HEAD_BYTES
from dyna_train.episode.reader import Episode
from dyna_train.episode.span import fetch
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.errors import BadInput, CorruptEpisode
from dyna_train.video.encode import Quality

NUM_STEPS = 20


@pytest.fixture(scope="module")
def episode(tmp_path_factory: pytest.TempPathFactory) -> Episode:
    path = tmp_path_factory.mktemp("asked") / "e.mcap"
    write_painted(path, NUM_STEPS)
    return Episode.open(path)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            np.ones(NUM_STEPS, bool),
            r"steps are bool \[20\], expected a list of whole numbers; of a mask take",
        ),
        ([1.0, 2.0], r"steps are float64 \[2\], expected a list of whole numbers"),
        (["3"], r"steps are <U1 \[1\], expected a list of whole numbers"),
        ([[1, 2], [3, 4]], r"steps are int64 \[2, 2\]"),
        ([[1], [2, 3]], "expected whole numbers"),
        (None, r"steps are object \[\]"),
        ({1, 2}, r"steps are object \[\]"),
        ([10**30], r"steps are object \[1\]"),
        ([NUM_STEPS], "step 20 is outside the episode; expected 0 <= step < 20"),
        ([-1], "step -1 is outside the episode"),
    ],
)
def test_what_is_no_step_number_is_refused_by_episode_and_span_alike(episode, steps, message):
    (span,) = fetch([episode.plan(frame_steps=range(NUM_STEPS), state_steps=range(NUM_STEPS))])
    asks: list[Callable[[Any], Any]] = [
        lambda asked: episode.frames("top", asked),
        lambda asked: episode.plan(state_steps=asked),
        lambda asked: span.frames("top", asked),
        lambda asked: span.state(asked),
    ]
    for ask in asks:
        with pytest.raises(BadInput, match=message):
            ask(steps)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_steps_may_be_whole_numbers_of_any_width(episode, dtype):
    assert np.array_equal(episode.frames("top", np.array([3, 1], dtype)), episode.frames("top", [1, 3])[::-1])


@pytest.mark.parametrize("size", [(0, 0), (-1, 5), (1.5, 2), (48,)])
def test_a_size_that_is_no_height_and_width_is_refused(episode, size):
    with pytest.raises(BadInput, match="expected \\(height, width\\) in whole pixels, both above 0"):
        episode.frames("top", [0], size)


def test_an_out_that_cannot_be_written_to_is_refused(episode):
    frozen = np.zeros((1, 48, 64, 3), np.uint8)
    frozen.flags.writeable = False
    for out in (frozen, [[0]]):
        with pytest.raises(BadInput, match="expected a numpy array that can be written to"):
            episode.frames("top", [0], out=out)
    (span,) = fetch([episode.plan(frame_steps=[0])])
    with pytest.raises(BadInput, match="output is 'bgr', expected 'rgb' or 'yuv420'"):
        span.frames("top", [0], output="bgr")


def test_capture_times_are_shared_and_therefore_read_only(episode):
    with pytest.raises(ValueError, match="read-only"):
        episode.capture_ns("/state/arm")[:] = 0


def test_a_frame_cannot_change_its_step_without_breaking_the_gops_checksum(tmp_path: Path) -> None:
    """A flipped bit in a message's sequence would put a picture into a gap."""
    path = tmp_path / "gap.mcap"
    described = header(12)
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors=vectors_of(described)
    ) as writer:
        for number, camera in enumerate(described.cameras):
            for step in range(12):
                if step in (10, 11):
                    writer.skip_steps(camera.name)
                else:
                    writer.add_frame(camera.name, paint(step, number, camera.width, camera.height), step)
        writer.finish()
    data = bytearray(path.read_bytes())
    with Episode.open(path) as episode:
        first, _ = episode.index.frame_ranges(0, 1)[3].tolist()  # step 9 of the first camera
        head = episode.index.head_bytes_N[0]
    record = first - head
    assert data[record] == Opcode.MESSAGE
    assert MESSAGE_HEAD_BYTES > RECORD_HEAD_BYTES + 6
    assert struct.unpack_from("<I", data, record + RECORD_HEAD_BYTES + 2) == (9,)
    data[record + RECORD_HEAD_BYTES + 2] ^= 2  # 9 -> 11
    path.write_bytes(data)
    with Episode.open(path) as episode, pytest.raises(CorruptEpisode, match=r"camera top, GOP 1 .* crc32"):
        episode.frames("top", [11])
