"""Every recording that is looked at: as it was recorded, and with each fault planted at each strength."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import av
import numpy as np

from benchmarks._faults import Planted
from benchmarks._file_faults import file_cases
from benchmarks._held import HeldRecording, drafted
from benchmarks._lerobot_checks import lerobot_notices
from benchmarks._measured import Found, after, before, rejected, reported
from benchmarks._real_faults import CONFIDENCE, FAULTS
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources import detect
from dyna_assets.simulate import record_uploads

SIM_SIZE, SIM_SECONDS = (120, 160), 4.0
UNSEEN_SIZE = (32, 32)
"""Of pictures that no check looks at."""
FILE_FRAMES = 60
POSITIONS = {
    "cameras": [
        {"name": name, "topic": f"/cam_{name}/image/compressed"}
        for name in ("left_wrist", "right_wrist", "top")
    ],
    "states": [
        {
            "name": f"{side}_arm",
            "topic": f"/{side}_arm/joint_states.position",
            "units": "rad",
            "range": [-7.0, 7.0],
        }
        for side in ("left", "right")
    ],
    "actions": [
        {"name": f"{side}_leader", "topic": f"/{side}_leader/joint_states.position", "units": "rad"}
        for side in ("left", "right")
    ],
    "ignore": ["*_arm/joint_states.*", "*_leader/joint_states.*"],
}
"""What a person writes about the simulator's recordings."""
LEROBOT = {"g1": "g1_inspire_lerobot_v21", "so101": "so101_sim_lerobot_v30"}
REAL_RANGE = (-4.0, 4.0)
TRUE_OF_REAL = {"g1": frozenset[str](), "so101": frozenset({"state.moves"})}
"""In the so101 recordings the robot does not move in a single row."""


@dataclass(frozen=True, slots=True)
class Case:
    """One recording that was looked at. planted: None for a good one.

    reported, rejected: checks beyond a limit. lerobot: whether LeRobot's own checks notice anything, None where it is
    no LeRobot recording. true_of_it: what is rightly reported of the recording as it was found.
    """

    name: str
    planted: Planted | None
    strength: float
    reported: frozenset[str]
    rejected: frozenset[str]
    lerobot: bool | None = None
    true_of_it: frozenset[str] = frozenset()

    @property
    def finds(self) -> str:
        """The check that its fault is planted for, '' for a good recording."""
        return self.planted.finds if self.planted else ""

    @property
    def must_be_found(self) -> bool:
        """Whether its fault is strong enough to cost training something."""
        return self.planted is not None and self.strength >= self.planted.must

    @property
    def is_found(self) -> bool:
        """Whether the check for its fault reports it."""
        return self.finds in self.reported

    @property
    def false_alarms(self) -> frozenset[str]:
        """What is reported and should not be."""
        if self.planted is None:
            return self.reported - self.true_of_it
        expected = {*self.planted.also} | ({self.finds} if self.strength > self.planted.harmless else set())
        return self.reported - self.true_of_it - expected


def simulated_cases(
    planted: Sequence[Planted], folder: Path, *, num_good: int, seeds: Sequence[int]
) -> Iterator[Case]:
    """Uploads of the simulator: good ones, and one for each fault, strength and seed."""
    for number in range(num_good):
        yield _simulated(folder, None, 1.0, 100 + number)
    for fault in planted:
        for strength in fault.strengths:
            for seed in seeds:
                yield _simulated(folder, fault, strength, seed)


def real_cases(
    planted: Sequence[Planted], data: Path, *, episodes: int | None, with_pictures: Sequence[str]
) -> Iterator[Case]:
    """The episodes of both LeRobot sets that have video: as they are, and with each fault that fits.

    episodes: so many of each set, None for all. with_pictures: those of whose pictures faults are planted, too.
    """
    for name, dataset in LEROBOT.items():
        folder = Folder.of(data / dataset)
        reader = detect(folder)
        refs = [ref for ref in reader.recordings(folder) if ref.name != "episode_000000" or name != "g1"]
        for ref in refs[:episodes]:
            with reader.open(folder, ref) as recording:
                profile = drafted(reader, recording, REAL_RANGE)
                held = HeldRecording.of(recording, profile, pictures=True)
            episode = f"{name}/{ref.name}"
            yield _real(episode, held, profile, None, 1.0)
            for fault in planted:
                if (fault.pictures and episode not in with_pictures) or not _fits(fault, held):
                    continue
                for strength in fault.strengths:
                    yield _real(episode, held, profile, fault, strength)


def made_cases(planted: Sequence[Planted], data: Path, folder: Path) -> Iterator[Case]:
    """An episode file of the first frames of a real episode: as it was made, and with each fault."""
    folder_of = Folder.of(data / LEROBOT["g1"])
    reader = detect(folder_of)
    ref = next(ref for ref in reader.recordings(folder_of) if ref.name == "episode_000010")
    with reader.open(folder_of, ref) as recording:
        camera = reader.roles(recording).cameras[0][1]
        pictures = [message.payload for message in islice(recording.read([camera]), FILE_FRAMES)]
    frames = [picture for picture in pictures if isinstance(picture, av.VideoFrame)]
    for fault, strength, found in file_cases(planted, frames, folder):
        yield _case("file", fault, strength, found)


def _simulated(folder: Path, planted: Planted | None, strength: float, seed: int) -> Case:
    name = f"{planted.fault}:{strength:g}" if planted else ""
    looks = planted is None or planted.pictures
    size = SIM_SIZE if looks else UNSEEN_SIZE
    with tempfile.TemporaryDirectory(dir=folder) as landing:
        (upload,) = record_uploads(
            landing, 1, seed=seed, seconds=SIM_SECONDS, size=size, faults=[name] if name else []
        )
        lies = Folder.of(upload.path)
        reader = detect(lies)
        profile = SourceProfile.model_validate(
            {"name": "sim", "landing": "sim", "reader": reader.name, "grid": {"rate_hz": 30}, **POSITIONS}
        )
        with reader.open(lies, reader.recordings(lies)[0]) as recording:
            found = before(recording, profile)
            if looks:
                found = {**found, **after(recording, profile)}
    return _case(f"sim/{seed}", planted, strength, found)


def _real(
    episode: str, held: HeldRecording, profile: SourceProfile, planted: Planted | None, strength: float
) -> Case:
    if planted is not None:
        rng = np.random.default_rng(
            [zlib.crc32(f"{episode} {planted.fault}".encode()), round(100 * strength)]
        )
        held = FAULTS[planted.fault](held, strength, rng)
    found = before(held, _with_confidence(profile, held))
    if planted is None or planted.pictures:
        found = {**found, **after(held, profile)}
    known = TRUE_OF_REAL[episode.partition("/")[0]]
    return _case(episode, planted, strength, found, lerobot_notices(held), known)


def _case(
    episode: str,
    planted: Planted | None,
    strength: float,
    found: Found,
    lerobot: bool | None = None,
    true_of_it: frozenset[str] = frozenset(),
) -> Case:
    name = f"{episode} {planted.fault}:{strength:g}" if planted else episode
    beyond, refused = frozenset(reported(found)), frozenset(rejected(found))
    return Case(name, planted, strength, beyond, refused, lerobot, true_of_it)


def _with_confidence(profile: SourceProfile, held: HeldRecording) -> SourceProfile:
    if CONFIDENCE not in held.topics:
        return profile
    states = tuple(state.model_copy(update={"confidence": CONFIDENCE}) for state in profile.states)
    return profile.model_copy(update={"states": states})


def _fits(planted: Planted, held: HeldRecording) -> bool:
    """Faults of motion need a robot that moves, which the so101 recordings have none of."""
    moves = any(np.ptp(values_ND, axis=0).any() for values_ND in held.values.values())
    return moves or planted.finds not in STILL_ROBOTS


STILL_ROBOTS = frozenset(
    {
        "vector.spikes",
        "state.frozen_joint",
        "state.moves",
        "state.stutter",
        "action.is_next_state",
        "camera.frozen",
        "camera.repeats",
    }
)
