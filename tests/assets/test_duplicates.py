"""Duplicates: planted copies of real episodes are found with what gave them away, and nothing else is.

Array axes: T steps, K codes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from label_samples import arm_view, encoded_anew, g1_film, g1_trajectories, g1_view
from row_samples import START_NS
from typer.testing import CliRunner

from dyna_assets.commands import duplicates as command
from dyna_assets.curation.duplicates import (
    LEAST_SHARED,
    MOST_HOLDERS,
    NEAR_CAMERA,
    NEAR_STATE,
    Agreement,
    Copy,
    Duplicate,
    Duplicates,
    find_duplicates,
    pair_up,
)
from dyna_assets.errors import CurationError
from dyna_assets.home import Home
from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.digest import codes_text
from dyna_assets.labels.view import EpisodeView
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import ANNOTATIONS, EPISODES
from dyna_assets.workspace import Workspace

SECOND = 30  # steps
NUM_REAL = 84
APP = typer.Typer()
APP.command()(command.duplicates)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "tables"))
    made.create()
    return made


def fill(warehouse: Warehouse, views: Mapping[int, EpisodeView], *, seq: int = 1, **started: int) -> None:
    """Episodes and their digests, as the steps leave them."""
    nothing: dict[str, Any] = {
        name: [] if pa.types.is_list(kind) else "" if kind == pa.string() else 0
        for name, kind in EPISODES.columns
    }
    episodes, annotations = [], []
    for number, view in views.items():
        facts = {"source": "lab", "name": f"take {number}", "rate_hz": 30.0, "num_steps": view.num_steps}
        facts |= {"start_ns": START_NS, "duration_s": view.duration_s, "content_hash": f"{number:064x}"}
        stretches = {"valid_starts": [0], "valid_ends": [view.num_steps]}
        episodes.append({**nothing, **facts, **stretches, "episode_id": number})
        found = annotate(view, {name: LABELLERS[name] for name in ("digest", "performance")})
        annotations += [{"episode_id": number, **row} for row in found.rows]
    warehouse.append(EPISODES, 0, seq, episodes, run_id="r")
    warehouse.append(ANNOTATIONS, 0, seq, annotations, run_id="r")


def of_film(trace: Any) -> EpisodeView:
    return arm_view(np.zeros((trace.num_steps, 1)), cameras=["top"], traces={"top": trace})


def ids(found: Duplicates) -> dict[tuple[int, int], str]:
    return {(pair.one.episode_id, pair.other.episode_id): pair.kind for pair in found.pairs}


def copies_of(shared_data: Path) -> dict[int, EpisodeView]:
    """100 + n is a copy of real episode n; its stamps, its start or its end are not the same."""
    rng = np.random.default_rng(0)
    made = {}
    for number in range(0, NUM_REAL, 4):
        state_TD, action_TD = g1_trajectories(shared_data)[number]
        num_steps = len(state_TD)
        stamped_anew_T = np.rint(np.arange(num_steps) + rng.normal(0, 0.3, num_steps)).astype(int)
        steps_T = (
            np.arange(num_steps),
            np.arange(SECOND, num_steps),
            np.arange(num_steps - SECOND),
            stamped_anew_T.clip(0, num_steps - 1),
        )[number // 4 % 4]
        made[100 + number] = g1_view(shared_data, state_TD[steps_T], action_TD[steps_T])
    return made


def test_copies_cut_by_a_second_or_stamped_anew_are_found_and_no_other_episode_of_the_task(
    warehouse: Warehouse, shared_data: Path
) -> None:
    real = {number: g1_view(shared_data, *pair) for number, pair in enumerate(g1_trajectories(shared_data))}
    copies = copies_of(shared_data)
    fill(warehouse, {**real, **copies})
    found = find_duplicates(warehouse)
    assert (found.num_episodes, found.num_without) == (NUM_REAL + len(copies), 0)
    kinds = ids(found)
    assert set(kinds) == {(number - 100, number) for number in copies}
    assert {pair for pair, kind in kinds.items() if kind == "exact"} == {
        (number, number + 100) for number in range(0, NUM_REAL, 16)
    }
    assert all(one.subject == "state" for pair in found.pairs for one in pair.evidence)
    assert min(pair.similarity for pair in found.pairs) > NEAR_STATE + 0.05


def test_a_film_encoded_anew_is_found_by_its_pictures_alone(warehouse: Warehouse, shared_data: Path) -> None:
    films = [g1_film(shared_data, 1), g1_film(shared_data, 20), encoded_anew(shared_data, 1, crf=34)]
    fill(warehouse, dict(enumerate(map(of_film, films))))
    (pair,) = find_duplicates(warehouse).pairs
    assert (pair.kind, pair.one.episode_id, pair.other.episode_id) == ("near", 0, 2)
    (agreed,) = pair.evidence
    assert agreed.subject == "camera/top" and NEAR_CAMERA < agreed.similarity == pair.similarity < 1


def test_all_copies_of_one_recording_are_paired_with_the_first(
    warehouse: Warehouse, shared_data: Path
) -> None:
    state_TD, action_TD = g1_trajectories(shared_data)[0]
    same, cut = (g1_view(shared_data, state_TD[start:], action_TD[start:]) for start in (0, SECOND))
    fill(warehouse, {**dict.fromkeys(range(30), same), 30: cut})
    found = find_duplicates(warehouse)
    assert ids(found) == {**{(0, number): "exact" for number in range(1, 30)}, (0, 30): "near"}
    assert found.pairs[0].similarity == 1.0


def test_only_the_newest_labels_count_and_those_of_another_version_do_not(
    warehouse: Warehouse, shared_data: Path
) -> None:
    views = [g1_view(shared_data, *pair) for pair in g1_trajectories(shared_data)[:2]]
    fill(warehouse, {0: views[0], 1: views[0], 2: views[0]})
    fill(warehouse, {1: views[1]}, seq=2)
    old = [
        {"episode_id": 2, **row, "labeller_version": 1}
        for row in annotate(views[0], {"digest": LABELLERS["digest"]}).rows
    ]
    warehouse.append(ANNOTATIONS, 0, 3, old, run_id="r")
    found = find_duplicates(warehouse)
    assert found == Duplicates((), num_episodes=3, num_without=1)


def test_a_condition_says_which_episodes_are_compared(warehouse: Warehouse, shared_data: Path) -> None:
    view = g1_view(shared_data, *g1_trajectories(shared_data)[0])
    fill(warehouse, dict.fromkeys(range(3), view))
    assert ids(find_duplicates(warehouse, "episode_id > 0")) == {(1, 2): "exact"}
    with pytest.raises(CurationError, match=r"selects 0 of 3 episodes .* Condition: episode_id > 7"):
        find_duplicates(warehouse, "episode_id > 7")
    with pytest.raises(CurationError, match=r"did you mean 'episode_id'\?"):
        find_duplicates(warehouse, "episode = 1")


def digests(sketches: Iterable[Sequence[int]], films: Iterable[Sequence[int]] = ()) -> pa.Table:
    """A table of digests with these codes, by episode."""
    return pa.Table.from_pylist(
        [
            {"episode_id": number, "subject": subject, "key": key, "text": codes_text(np.array(codes, "u8"))}
            for subject, key, every in (("state", "sketch", sketches), ("camera/a", "digest.frames", films))
            for number, codes in enumerate(every)
        ]
    )


def paired(table: pa.Table) -> set[tuple[int, int, str]]:
    with duckdb.connect() as connection:
        connection.register("digests", table)
        pair_up(connection)
        return set(connection.execute("SELECT one, other, kind FROM pairs").fetchall())


def agree(mine: Sequence[int], its: Sequence[int], share: float) -> bool:
    num_shared = len(set(mine) & set(its))
    return num_shared >= max(LEAST_SHARED, share * min(len(mine), len(its)))


CODES = st.lists(st.lists(st.integers(0, 40), min_size=8, max_size=16, unique=True), min_size=8, max_size=8)


@settings(max_examples=25)
@given(CODES, CODES)
def test_the_pairs_are_those_that_a_look_at_every_pair_would_find(
    sketches: list[list[int]], films: list[list[int]]
) -> None:
    assert paired(digests(sketches, films)) == {
        (one, other, "near")
        for one, other in itertools.combinations(range(len(sketches)), 2)
        if agree(sketches[one], sketches[other], NEAR_STATE) or agree(films[one], films[other], NEAR_CAMERA)
    }


def test_codes_that_many_episodes_have_bring_nobody_together() -> None:
    home = list(range(6))
    films = [[*home, *range(100 * number, 100 * number + 10)] for number in range(1, MOST_HOLDERS + 2)]
    own = [range(1000 * number, 1000 * number + 8) for number in range(1, len(films) + 1)]
    assert paired(digests(own, films)) == set()
    assert len(paired(digests(own[:3], films[:3]))) == 3


PAIR = Duplicate(
    "near",
    Copy(4, "lab", "monday/take_4", START_NS, 10.3),
    Copy(3112, "lab", "tuesday/a name that goes on and on, as names of folders do in real life/take_4",
         START_NS + 1_000_000_000, 9.3),
    (Agreement("state", 27, 32), Agreement("camera/left_wrist", 29, 32)),
)  # fmt: skip


def test_a_pair_is_written_within_eighty_columns() -> None:
    text = "\n".join(command.pair_lines(PAIR))
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[0] == "near   4 lab: monday/take_4"
    assert "state 27 of 32, camera/left_wrist 29 of 32, 1.00 s shorter" in text
    assert " ".join(text.split()).endswith("1.00 s shorter, begins 1.00 s later")


def test_the_command_lists_the_pairs_and_exits_with_0(
    home: Home, postgres_url: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.settings.write_text(f"database_url = {json.dumps(postgres_url)}\n")
    monkeypatch.setenv("DYNA_HOME", str(home.path))
    workspace = Workspace.open(home)
    view = g1_view(shared_data, *g1_trajectories(shared_data)[0])
    fill(workspace.warehouse, {0: view, 1: view, 2: arm_view(np.zeros((60, 1)))})
    workspace.catalog.close()
    done = CliRunner().invoke(APP, [])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("exact  0 lab: take 0\n       1 lab: take 1\n       the states are equal\n")
    assert "1 pair (1 exact) among 3 episodes; 1 of these has no digest" in done.stdout
    said = json.loads(CliRunner().invoke(APP, ["--json"]).stdout)
    assert (said["num_episodes"], said["num_without_digest"]) == (3, 1)
    (pair,) = said["duplicates"]
    assert (pair["kind"], pair["one"]["episode_id"], pair["similarity"]) == ("exact", 0, 1.0)
    assert pair["evidence"][0]["similarity"] == 1.0
