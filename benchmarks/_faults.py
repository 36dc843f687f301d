"""The faults that are planted, and what has to be found of each.

Of a fault of strength 0 to 1 it is said from where on it costs training something and has to be found, and up to
where a person would call the recording good, so that it must not be reported. Between the two either is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STRENGTHS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
ALWAYS = (1.0,)
PICTURES = ("blurred", "flat", "repeats", "frozen", "dark", "glitch")
"""What a picture that is not one may look like, too."""
CLOCKS = (
    "length_mismatch",
    "late_start",
    "gap",
    "valid_share",
    "jitter",
    "rate",
    "duration",
    "drift",
    "latency",
)


@dataclass(frozen=True, slots=True)
class Planted:
    """One kind of fault.

    finds: the check it is planted for. must: from this strength on that check has to report it. harmless: up to this
    strength it must not. also: checks that it may set off, too. pictures: whether it changes what a camera shows.
    """

    fault: str
    finds: str
    must: float
    harmless: float = 0.0
    also: tuple[str, ...] = ()
    pictures: bool = False
    strengths: tuple[float, ...] = STRENGTHS

    def setting_off(self, *also: str) -> Planted:
        """The same, which may set off these checks, too."""
        return replace(self, also=(*self.also, *also))


def _camera(
    fault: str, finds: str, must: float, harmless: float = 0.0, strengths: tuple[float, ...] = STRENGTHS
) -> Planted:
    also = tuple(f"camera.{name}" for name in PICTURES)
    return Planted(fault, f"camera.{finds}", must, harmless, also, True, strengths)


def _clock(fault: str, finds: str, must: float, harmless: float = 0.0) -> Planted:
    return Planted(fault, finds, must, harmless, tuple(f"time.{name}" for name in CLOCKS))


SIMULATED = (
    Planted("missing_camera", "topics.present", 0.0, strengths=ALWAYS),
    Planted("unknown_topic", "topics.unmapped", 0.0, strengths=ALWAYS),
    _clock("clock_jump", "time.monotonic", 0.05),
    Planted("early_stop", "time.duration", 0.95, 0.7).setting_off("state.moves", "state.frozen_joint"),
    Planted("length_mismatch", "time.length_mismatch", 0.35, 0.2),
    Planted("late_camera", "time.late_start", 0.35, 0.2),
    _clock("silent_camera", "time.gap", 0.2, 0.1).setting_off("camera.drops"),
    _clock("silent_camera", "time.valid_share", 0.7, 0.2).setting_off("camera.drops"),
    Planted("silent_leader", "time.action_gap", 0.2, 0.1),
    _clock("jittery_stamps", "time.jitter", 0.05).setting_off("vector.spikes", "state.stutter"),
    Planted("future_clock", "time.future", 0.2),
    _clock("late_messages", "time.latency", 0.35, 0.2),
    _clock("drifting_clock", "time.drift", 0.35, 0.1),
    _clock("dropping_camera", "camera.drops", 0.35, 0.1),
    Planted("nan_state", "vector.finite", 0.05),
    Planted("wrong_unit", "vector.range", 0.05).setting_off("state.stutter", "vector.spikes"),
    Planted("spiking_joint", "vector.spikes", 0.35, 0.1),
    Planted("frozen_joint", "state.frozen_joint", 0.0, strengths=ALWAYS),
    Planted("frozen_arms", "state.moves", 0.0, strengths=ALWAYS).setting_off("state.stutter"),
    Planted("stuttering_arm", "state.stutter", 0.35, 0.1).setting_off("state.frozen_joint"),
    _camera("black_camera", "dark", 0.0, strengths=ALWAYS),
    _camera("dark_camera", "dark", 0.95, 0.7, (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)),
    _camera("overexposed_camera", "overexposed", 0.7, 0.1),
    _camera("covered_camera", "flat", 0.95, 0.5, (0.5, 0.8, 0.9, 0.95, 1.0)),
    _camera("blurred_camera", "blurred", 0.7, 0.1),
    _camera("glitching_camera", "glitch", 0.5),
    _camera("frozen_camera", "frozen", 0.35, 0.1),
    _camera("repeating_camera", "repeats", 0.7, 0.35),
)
"""In uploads of the simulator, each recorded with its fault."""

REAL = (
    Planted("lost_camera", "topics.present", 0.0, strengths=ALWAYS),
    _clock("clock_jump", "time.monotonic", 0.05).setting_off("video.clock"),
    Planted("short_episode", "time.duration", 1.0, 0.5).setting_off("state.moves", "state.frozen_joint"),
    _clock("unpaired_frames", "rows.paired", 0.05),
    _clock("wrong_rate", "time.rate", 0.2).setting_off("video.clock"),
    _clock("slow_video", "video.clock", 0.1),
    Planted("nan_state", "vector.finite", 0.05),
    Planted("wrong_unit", "vector.range", 0.05).setting_off("state.stutter", "vector.spikes"),
    Planted("spiking_joint", "vector.spikes", 0.5, 0.1),
    Planted("frozen_joint", "state.frozen_joint", 0.0, strengths=ALWAYS),
    Planted("frozen_state", "state.moves", 0.0, strengths=ALWAYS).setting_off("state.stutter"),
    Planted("stuttering_state", "state.stutter", 0.35, 0.05).setting_off("vector.spikes"),
    Planted("copied_action", "action.is_next_state", 0.7, 0.35),
    Planted("lost_hands", "hands.missing", 0.2, 0.05).setting_off("state.moves"),
    Planted("hidden_hands", "hands.occluded", 0.35, 0.2),
    _camera("dark_camera", "dark", 0.95, 0.7, (0.5, 0.7, 0.9, 0.95, 1.0)),
    _camera("overexposed_camera", "overexposed", 0.7),
    _camera("covered_camera", "flat", 0.95, 0.5, (0.5, 0.8, 0.9, 0.95, 1.0)),
    _camera("blurred_camera", "blurred", 0.5),
    _camera("glitching_camera", "glitch", 0.5),
    _camera("frozen_camera", "frozen", 0.2, 0.05),
    _camera("repeating_camera", "repeats", 0.5),
)
"""In real LeRobot episodes, into what was read of them."""

IN_FILES = (
    Planted("other_pictures", "video.readback", 0.35, 0.05),
    Planted("lost_frames", "video.frames", 0.05),
    Planted("damaged_video", "video.frames", 0.0, strengths=ALWAYS).setting_off("video.readback"),
    Planted("lost_steps", "episode.steps", 0.05, strengths=(0.05, 1.0)),
)
"""In episode files, after they were made."""
