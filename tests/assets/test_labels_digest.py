"""Digests: the same episode is known again, another one of the same task is not.

Array axes: T steps, D dimensions.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_samples import arm_view, encoded_anew, g1_film, g1_trajectories, g1_view, reaches, trace_of

from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.digest import CODE_CHARACTERS, LEAST_CODES, NUM_CODES, Codes, codes_text
from dyna_assets.labels.view import EpisodeView
from dyna_assets.quality.trace import CameraTrace

SECOND = 30  # steps


def digests(view: EpisodeView) -> dict[tuple[str, str], str]:
    """(subject, key) -> text."""
    rows = annotate(view, {"digest": LABELLERS["digest"]}).rows
    return {(row["subject"], row["key"]): row["text"] for row in rows}


def codes(text: str) -> set[str]:
    return {text[place : place + CODE_CHARACTERS] for place in range(0, len(text), CODE_CHARACTERS)}


def alike(one: Mapping[Any, str], other: Mapping[Any, str], subject: str = "state") -> float:
    """Share of the codes of a digest that both have."""
    key = (subject, "sketch" if subject == "state" else "digest.frames")
    mine, its = codes(one[key]), codes(other[key])
    return len(mine & its) / min(len(mine), len(its))


def of_film(trace: CameraTrace) -> dict[tuple[str, str], str]:
    return digests(arm_view(np.zeros((trace.num_steps, 1)), cameras=["top"], traces={"top": trace}))


def cut(trace: CameraTrace, steps: slice) -> CameraTrace:
    return CameraTrace(*(getattr(trace, field.name)[steps] for field in fields(trace)))


def test_a_film_encoded_anew_or_cut_is_like_itself_and_another_of_the_task_is_not(shared_data: Path) -> None:
    original, other = of_film(g1_film(shared_data, 1)), of_film(g1_film(shared_data, 20))
    coarse = encoded_anew(shared_data, 1, crf=34)
    assert alike(original, of_film(coarse), "camera/top") > 0.3
    assert alike(original, of_film(cut(coarse, slice(SECOND, None))), "camera/top") > 0.2
    assert alike(original, other, "camera/top") < 0.05


@pytest.mark.parametrize("steps", [slice(SECOND, None), slice(None, -SECOND)])
def test_a_real_episode_cut_by_a_second_is_like_itself(shared_data: Path, steps: slice) -> None:
    for pair in g1_trajectories(shared_data)[::4]:
        whole, shorter = (
            digests(g1_view(shared_data, *(values[part] for values in pair))) for part in (slice(None), steps)
        )
        assert alike(whole, shorter) > 0.65
        assert whole["state", "digest.state"] != shorter["state", "digest.state"]


def test_no_two_real_episodes_of_one_task_are_alike(shared_data: Path) -> None:
    found = [digests(g1_view(shared_data, *pair)) for pair in g1_trajectories(shared_data)]
    most = max(alike(one, other) for number, one in enumerate(found) for other in found[:number])
    assert most < 0.2
    assert len({one["state", "digest.state"] for one in found}) == len(found)


@given(factor=st.floats(0.02, 1000), moved=st.floats(-10, 10))
def test_neither_the_unit_nor_the_place_of_a_trajectory_changes_its_sketch(
    factor: float, moved: float
) -> None:
    there_TD = reaches(200) * factor + moved
    assert alike(digests(arm_view(reaches(200))), digests(arm_view(there_TD))) > 0.9


def test_a_gripper_in_millimetres_counts_no_more_than_one_in_metres() -> None:
    moves_TD = reaches(300, 4)
    in_mm_TD = moves_TD * [1, 1, 1, 1000]
    assert alike(digests(arm_view(moves_TD)), digests(arm_view(in_mm_TD))) > 0.6


def test_the_order_of_dimensions_and_their_noise_change_little() -> None:
    moves_TD = reaches(300)
    with_noise_TD = moves_TD + np.random.default_rng(0).normal(0, 2e-3, moves_TD.shape)
    one = digests(arm_view(moves_TD))
    assert alike(one, digests(arm_view(with_noise_TD))) > 0.6
    sample = arm_view(moves_TD)
    (track,) = sample.header.vectors
    turned = replace(track, names=track.names[::-1])
    turned_view = replace(
        sample,
        header=replace(sample.header, vectors=(turned,)),
        vectors={"/state/arm": sample.vectors["/state/arm"][:, ::-1]},
    )
    assert alike(one, digests(turned_view)) > 0.9


def test_what_stands_still_or_is_short_has_nothing_that_would_tell_it_from_others() -> None:
    assert digests(arm_view(np.full((90, 2), 0.5))) == {}
    assert digests(arm_view(np.full((90, 2), np.nan))) == {}
    assert set(digests(arm_view(reaches(20)))) == {("state", "digest.state")}
    still = trace_of(np.zeros(90))
    assert digests(arm_view(np.zeros((90, 2)), cameras=["top"], traces={"top": still})) == {}


def test_an_episode_has_a_hash_of_its_state_and_codes_of_its_trajectory_and_of_each_camera() -> None:
    hashes_T = np.random.default_rng(0).integers(0, 2**63, 90).astype(np.uint64)
    traces = {"top": trace_of(np.ones(90), hashes_T), "dark": CameraTrace.empty(90)}
    found = digests(arm_view(reaches(90), cameras=["top", "dark"], traces=traces))
    assert list(found) == [("state", "digest.state"), ("state", "sketch"), ("camera/top", "digest.frames")]
    assert len(found["state", "digest.state"]) == 32
    for key in (("state", "sketch"), ("camera/top", "digest.frames")):
        assert LEAST_CODES <= len(codes(found[key])) <= NUM_CODES


def test_a_step_without_a_picture_counts_as_the_picture_before() -> None:
    hashes_T = np.random.default_rng(0).integers(0, 2**63, 90).astype(np.uint64)
    gap = trace_of(np.ones(90), hashes_T)
    gap.level_T[50:55] = np.nan
    held = trace_of(np.ones(90), np.r_[hashes_T[:50], np.repeat(hashes_T[49], 5), hashes_T[55:]])
    assert of_film(gap) == of_film(held)


@given(st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=NUM_CODES, unique=True))
def test_codes_are_written_in_eight_characters_each(numbers: list[int]) -> None:
    codes_K: Codes = np.array(numbers, np.uint64)
    text = codes_text(codes_K)
    assert len(text) == CODE_CHARACTERS * len(numbers)
    read = [
        int.from_bytes(base64.b64decode(text[place : place + CODE_CHARACTERS]), "big")
        for place in range(0, len(text), CODE_CHARACTERS)
    ]
    assert read == numbers
