"""Digests: the same episode is known again, another one of the same task is not.

Array axes: T steps.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_samples import arm_view, g1_trajectories, g1_view, reaches, trace_of

from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.digest import NEAR, Digests, similarity
from dyna_assets.quality.trace import CameraEye, CameraTrace
from dyna_train.video.decode import decode_gop
from dyna_train.video.encode import CameraEncoder, Quality

NUM_FRAMES = 90


def film(shared_data: Path, episode: int) -> list[av.VideoFrame]:
    """The first pictures of a real head camera, half as wide and high."""
    folder = shared_data / "g1_inspire_lerobot_v21" / "videos" / "chunk-000" / "observation.images.cam_high"
    with av.open(folder / f"episode_{episode:06d}.mp4") as container:
        decoded = container.decode(video=0)
        return [next(decoded).reformat(320, 240, "yuv420p") for _ in range(NUM_FRAMES)]


def recoded(frames: list[av.VideoFrame], crf: int) -> list[av.VideoFrame]:
    encoder = CameraEncoder("top", 320, 240, rate_hz=30.0, gop=30, quality=Quality(crf))
    packets = [packet for step, frame in enumerate(frames) for packet in encoder.encode(frame, step)]
    packets += encoder.flush()
    return [
        frame
        for start in range(0, len(packets), 30)
        for frame in decode_gop(packets[start : start + 30], what="top")
    ]


def traced(frames: list[av.VideoFrame]) -> CameraTrace:
    eye = CameraEye(len(frames))
    for step, frame in enumerate(frames):
        eye.see(step, frame)
    return eye.trace


def cut(trace: CameraTrace, steps: slice) -> CameraTrace:
    return CameraTrace(*(getattr(trace, field.name)[steps] for field in fields(trace)))


def of_film(trace: CameraTrace) -> Digests:
    state_TD = np.zeros((trace.num_steps, 1))
    return Digests.of(arm_view(state_TD, cameras=["top"], traces={"top": trace}))


def test_a_film_encoded_anew_or_cut_is_near_itself_and_another_of_the_task_is_not(shared_data: Path) -> None:
    frames, other = film(shared_data, 1), film(shared_data, 20)
    original = of_film(traced(frames))
    coarse = traced(recoded(frames, 34))
    assert similarity(original, of_film(coarse)) > 0.95
    assert similarity(original, of_film(cut(coarse, slice(3, None)))) > NEAR
    assert similarity(original, of_film(traced(other))) < NEAR


@pytest.mark.parametrize("steps", [slice(3, None), slice(None, -3)])
def test_a_real_episode_cut_by_three_steps_is_near_itself(shared_data: Path, steps: slice) -> None:
    for pair in g1_trajectories(shared_data):
        whole, shorter = (
            Digests.of(g1_view(shared_data, *(values[part] for values in pair)))
            for part in (slice(None), steps)
        )
        assert similarity(whole, shorter) > NEAR
        assert whole.state != shorter.state


def test_no_two_real_episodes_of_one_task_are_near_each_other(shared_data: Path) -> None:
    found = [Digests.of(g1_view(shared_data, *pair)) for pair in g1_trajectories(shared_data)]
    nearest = max(similarity(one, other) for number, one in enumerate(found) for other in found[:number])
    assert nearest < NEAR - 0.1
    assert len({one.state for one in found}) == len(found)


@given(seed=st.integers(0, 99), other=st.integers(0, 99), num_steps=st.integers(60, 200))
def test_similarity_is_symmetric_one_for_the_same_and_within_zero_and_one(
    seed: int, other: int, num_steps: int
) -> None:
    one, another = (Digests.of(arm_view(reaches(num_steps, seed=number))) for number in (seed, other))
    assert similarity(one, one) == 1.0
    assert similarity(one, another) == similarity(another, one)
    assert 0.0 <= similarity(one, another) <= 1.0
    assert (one.state == another.state) == (seed == other)


def test_the_order_of_dimensions_and_their_noise_change_nothing() -> None:
    moves_TD = reaches(300)
    with_noise_TD = moves_TD + np.random.default_rng(0).normal(0, 2e-3, moves_TD.shape)
    one, noisy = Digests.of(arm_view(moves_TD)), Digests.of(arm_view(with_noise_TD))
    assert similarity(one, noisy) > 0.98
    sample = arm_view(moves_TD)
    (track,) = sample.header.vectors
    turned = replace(track, names=track.names[::-1])
    turned_view = replace(
        sample,
        header=replace(sample.header, vectors=(turned,)),
        vectors={"/state/arm": sample.vectors["/state/arm"][:, ::-1]},
    )
    assert similarity(one, Digests.of(turned_view)) == pytest.approx(1, abs=1e-6)


def test_a_robot_that_stands_still_is_known_by_its_cameras_or_its_state() -> None:
    still_TD = np.full((60, 2), 0.5)
    one = Digests.of(arm_view(still_TD))
    assert one.sketch is None
    assert similarity(one, Digests.of(arm_view(still_TD))) == 1.0
    assert similarity(one, Digests.of(arm_view(still_TD + 0.2))) == 0.0
    assert similarity(one, Digests.of(arm_view(reaches(60, 2)))) == 0.0
    hashes = np.random.default_rng(0).integers(0, 2**63, (2, 60)).astype(np.uint64)
    films = [of_film(trace_of(np.ones(60), hashes_T)) for hashes_T in hashes]
    assert similarity(films[0], films[0]) == 1.0
    assert similarity(films[0], films[1]) < 0.2


def test_an_episode_has_a_digest_of_its_state_a_sketch_and_one_of_each_camera() -> None:
    traces = {"top": trace_of(np.ones(60)), "dark": CameraTrace.empty(60)}
    sample = arm_view(reaches(60), cameras=["top", "dark"], traces=traces)
    rows = annotate(sample, {"digest": LABELLERS["digest"]}).rows
    assert [(row["subject"], row["key"]) for row in rows] == [
        ("state", "digest.state"),
        ("state", "sketch"),
        ("camera/top", "digest.frames"),
    ]
    assert [len(row["text"]) for row in rows] == [32, 172, 172]
