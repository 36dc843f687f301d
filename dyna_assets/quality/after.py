"""Checks after the transform, over what the camera traces and a read-back of the episode file show.

Facts: {"num_steps", "num_planned", "cameras": {name: {num_steps, num_seen, high, clipped, ...}}}; see
`dyna_assets.quality.picture_facts` and `dyna_assets.steps.readback`. Levels are luma, 0 to 255.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dyna_assets.quality.registry import Facts, Measured, check
from dyna_assets.quality.spans import as_pairs

LEAST_MOVES_S = 0.5
"""A robot that moves for less time does not show whether a picture that stands still should."""


@check("camera.dark", "after", unit="levels", warn=32, reject=24, worse="below", version=2)
def camera_dark(facts: Facts) -> Iterator[Measured]:
    """A camera sees something bright: the 99th percentile of its luma; a dim scene with one bright thing passes."""
    for name, found in _seen(facts):
        note = (
            f"camera '{name}' is dark: only 1 of 100 points is brighter than {found['high']:.0f} of 255, mean level "
            f"{found['level']:.0f}. Its cap is on, the light is off, or its exposure is too short"
        )
        yield Measured(name, found["high"], note, as_pairs(found["dark_spans"]))


@check("camera.overexposed", "after", unit="share", warn=0.3, reject=0.7)
def camera_overexposed(facts: Facts) -> Iterator[Measured]:
    """Little of the picture is white from end to end."""
    for name, found in _seen(facts):
        note = f"camera '{name}' is overexposed: {found['clipped']:.0%} of its picture is white. Shorten its exposure"
        yield Measured(name, found["clipped"], note, as_pairs(found["clipped_spans"]))


@check("camera.flat", "after", unit="levels", warn=24, reject=12, worse="below")
def camera_flat(facts: Facts) -> Iterator[Measured]:
    """A picture has contrast: the distance from the 1st to the 99th percentile of its luma."""
    for name, found in _seen(facts):
        note = (
            f"camera '{name}' shows a plain picture: its levels lie within {found['contrast']:.0f} of 255. "
            "Its cap is on, something is in front of it, or its driver sends an empty picture"
        )
        yield Measured(name, found["contrast"], note, as_pairs(found["flat_spans"]))


@check("camera.frozen", "after", unit="s", warn=0.5, reject=1.5, version=2)
def camera_frozen(facts: Facts) -> Iterator[Measured]:
    """A picture does not stand still while the robot moves."""
    for name, found in _seen(facts):
        if found["moves_s"] >= LEAST_MOVES_S:
            note = (
                f"camera '{name}' is frozen: its picture repeats for {found['frozen_s']:.2f} s while the robot moves. "
                "Its driver hangs"
            )
            yield Measured(name, found["frozen_s"], note, as_pairs(found["frozen_spans"]))


@check("camera.repeats", "after", unit="share", warn=0.4, version=2)
def camera_repeats(facts: Facts) -> Iterator[Measured]:
    """Few new pictures repeat the one before while the robot moves; good recordings have up to a third."""
    for name, found in _seen(facts):
        if found["moves_s"] >= LEAST_MOVES_S:
            share = found["repeat_share"]
            note = f"camera '{name}': {share:.0%} of its pictures repeat the one before: it is slower than it says"
            yield Measured(name, share, note)


@check("camera.blurred", "after", unit="ratio", warn=0.33, reject=0.29, worse="below")
def camera_blurred(facts: Facts) -> Iterator[Measured]:
    """Edges are sharp: neighbouring points differ by 0.25 of what points four apart do if blurred, else by more."""
    for name, found in _seen(facts):
        if found["sharpness"] is not None:
            note = (
                f"camera '{name}' is blurred: neighbouring points differ by {found['sharpness']:.2f} of what points "
                "four apart do. Clean or focus its lens"
            )
            yield Measured(name, found["sharpness"], note)


@check("camera.glitch", "after", unit="share", warn=0.0, reject=0.02)
def camera_glitch(facts: Facts) -> Iterator[Measured]:
    """No picture differs from those before and after it, while these are alike."""
    for name, found in _seen(facts):
        note = (
            f"camera '{name}': {found['num_glitches']} times its picture jumps to another one and back: damaged "
            "frames, or frames of another moment"
        )
        yield Measured(name, found["glitch_share"], note, as_pairs(found["glitch_spans"]))


@check("video.frames", "after", unit="frames", reject=0)
def video_frames(facts: Facts) -> Iterator[Measured]:
    """As many frames as the file says it has were seen when it was made, and come out of it again."""
    for name, found in facts["cameras"].items():
        note = (
            f"camera '{name}': the file has {found['num_packets']} frames, {found['num_seen']} were seen"
            f"{'; ' + found['damage'] if found['damage'] else ''}. Make the episode again"
        )
        lost = abs(found["num_packets"] - found["num_seen"]) + found["num_lost"]
        yield Measured(name, lost, note)


@check("video.readback", "after", unit="levels", warn=2, reject=6)
def video_readback(facts: Facts) -> Iterator[Measured]:
    """The frames that come out of the file are those that went in: the mean luma of the steps looked at."""
    for name, found in facts["cameras"].items():
        if found["readback"] is not None:
            note = (
                f"camera '{name}': the frame at step {found['readback_step']} differs in mean level by "
                f"{found['readback']:.1f} from what went into the file. Make the episode again"
            )
            yield Measured(name, found["readback"], note)


@check("episode.steps", "after", unit="steps", reject=0)
def episode_steps(facts: Facts) -> Iterator[Measured]:
    """The file holds as many steps as its time grid has."""
    note = (
        f"the file holds {facts['num_steps']} steps, its grid {facts['num_planned']}. Make the episode again"
    )
    yield Measured("", abs(facts["num_steps"] - facts["num_planned"]), note)


def _seen(facts: Facts) -> Iterator[tuple[str, Any]]:
    """(name, facts) of the cameras that show a picture at all."""
    for name, found in facts["cameras"].items():
        if found["num_seen"]:
            yield name, found
