"""Checks before the transform of what the vectors say, over the facts of `dyna_assets.quality.vector_facts`."""

from __future__ import annotations

from collections.abc import Iterator

from dyna_assets.quality.before import topics_of
from dyna_assets.quality.registry import Facts, Measured, check
from dyna_assets.quality.spans import as_pairs
from dyna_assets.quality.vector_facts import LEAST_ROWS


@check("vector.finite", "before", unit="rows", reject=0)
def vector_finite(facts: Facts) -> Iterator[Measured]:
    """State and action hold numbers; where hands are detected, rows without a detection may be empty."""
    for topic, found in topics_of(facts, "state", "action"):
        counts = f"{found['num_nan']} of {found['num_messages']}"
        note = f"{topic}: {counts} rows hold NaN, infinity or too large numbers"
        yield Measured(found["name"], found["num_nan"], note, as_pairs(found["nan_spans"]))


@check("vector.range", "before", unit="share", warn=0.0, reject=0.01)
def vector_range(facts: Facts) -> Iterator[Measured]:
    """Values lie in the range that the source profile gives the role."""
    for topic, found in topics_of(facts, "state", "action"):
        if "outside_share" in found:
            low, high = found["range"]
            seen = ", ".join(
                f"{name} {least:g} to {most:g}" for name, (least, most) in found["outside"].items()
            )
            note = (
                f"{topic}: {found['outside_share']:.1%} of the rows leave the range {low:g} to {high:g} of the source "
                f"profile: {seen}. A wrong unit, or a sensor's error"
            )
            yield Measured(found["name"], found["outside_share"], note, as_pairs(found["outside_spans"]))


@check("vector.spikes", "before", unit="travel", warn=0.2)
def vector_spikes(facts: Facts) -> Iterator[Measured]:
    """No value jumps away and back within one sample, by a share of what its dimension covers otherwise."""
    for topic, found in topics_of(facts, "state", "action"):
        if "spike" in found:
            note = (
                f"{topic}: {found['num_spikes']} single rows jump away and back, {found['spike_dim']} by "
                f"{found['spike']:.0%} of its travel: a lost or mixed-up message of its bus"
            )
            yield Measured(found["name"], found["spike"], note, as_pairs(found["spike_spans"]))


@check("state.moves", "before", unit="dimensions", warn=1, worse="below", version=2)
def state_moves(facts: Facts) -> Iterator[Measured]:
    """The robot moves at all. A warning: some tasks hold still."""
    states = [found for _, found in topics_of(facts, "state")]
    num_dims, num_moving = (
        sum(len(found["names"]) for found in states),
        sum(found["num_moving"] for found in states),
    )
    if num_dims:
        note = f"none of the {num_dims} state dimensions ever moves: the robot stands still or was not read"
        yield Measured("", num_moving, note)


@check("state.frozen_joint", "before", unit="dimensions", warn=0)
def state_frozen_joint(facts: Facts) -> Iterator[Measured]:
    """No single joint stands still while the others move."""
    for topic, found in topics_of(facts, "state"):
        if found["num_messages"] < LEAST_ROWS:
            continue
        still, num_dims = found["still"], len(found["names"])
        verb = "changes" if len(still) == 1 else "change"
        note = f"{topic}: {', '.join(still)} never {verb} while {num_dims - len(still)} other dimensions do"
        yield Measured(found["name"], len(still) if len(still) < num_dims else 0, note)


@check("state.stutter", "before", unit="s", warn=0.25, reject=1.0)
def state_stutter(facts: Facts) -> Iterator[Measured]:
    """The state does not stand still, all of it, while the robot moves on."""
    for topic, found in topics_of(facts, "state"):
        if "stutter_s" in found:
            note = (
                f"{topic} repeats the same values for {found['stutter_s']:.2f} s while the robot moves: its driver "
                "stalled, and the rows are older than they say"
            )
            yield Measured(found["name"], found["stutter_s"], note, as_pairs(found["stutter_spans"]))


@check("action.is_next_state", "before", unit="share", warn=0.5)
def action_is_next_state(facts: Facts) -> Iterator[Measured]:
    """Commands are what was commanded, not the state of the same row or of the next one."""
    for topic, found in topics_of(facts, "action"):
        if "copies_share" in found:
            which = "the state of the next row" if found["copies"] == "next" else "the state of their own row"
            note = (
                f"{topic}: {found['copies_share']:.0%} of the commands are {which} exactly: made from it afterwards, "
                "they do not hold what the robot was told"
            )
            yield Measured(found["name"], found["copies_share"], note)


@check("hands.missing", "before", unit="share", warn=0.1, reject=0.5)
def hands_missing(facts: Facts) -> Iterator[Measured]:
    """Hands are detected in most rows."""
    for topic, found in topics_of(facts, "state", "action"):
        if "missing_share" in found:
            note = f"{topic}: nothing was detected in {found['missing_share']:.0%} of the rows"
            yield Measured(found["name"], found["missing_share"], note, as_pairs(found["missing_spans"]))


@check("hands.occluded", "before", unit="share", warn=0.3, reject=0.8)
def hands_occluded(facts: Facts) -> Iterator[Measured]:
    """Detected hands are seen rather than guessed: confidence from 0.5 on."""
    for topic, found in topics_of(facts, "state", "action"):
        if "occluded_share" in found:
            share = found["occluded_share"]
            note = f"{topic}: {share:.0%} of the detections have a confidence below 0.5: hands out of sight or covered"
            yield Measured(found["name"], share, note, as_pairs(found["occluded_spans"]))
