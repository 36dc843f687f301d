"""Finding an episode by an id, a name, or a part of one."""

from __future__ import annotations

import pytest

from dyna_assets.errors import CurationError
from dyna_assets.look.find import find_episode
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import VERSION_STAMPS

NAMES = {
    1: ("sim", "upload_1/take_a"),
    2: ("sim", "upload_1/take_b"),
    3: ("lab", "upload_2/take_a"),
    4: ("lab", "7"),
    5: ("lab", "größe/Ärmel 'x'"),
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    """A warehouse in which two steps have met each episode."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("tables")))
    warehouse.create()
    rows = [
        {"episode_id": number, "source": source, "name": name, "step": step, "status": "ok"}
        for number, (source, name) in NAMES.items()
        for step in ("recordings", "episodes")
    ]
    warehouse.append(VERSION_STAMPS, 0, 1, rows, run_id="test")
    return warehouse


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("sim: upload_1/take_b", 2),
        ("upload_2/take_a", 3),
        ("TAKE_B", 2),
        ("lab: upload_2", 3),
        ("7", 4),
        ("ärmel 'x'", 5),
    ],
)
def test_an_episode_is_found_by_id_name_or_a_part_that_only_one_has(warehouse, text, number):
    assert find_episode(warehouse, text) == number


def test_a_part_that_several_have_is_refused_and_names_them(warehouse):
    said = r"'take_a' is in the names of 2 episodes: 1 \(sim: upload_1/take_a\), 3 \(lab: upload_2/take_a\)"
    with pytest.raises(CurationError, match=said):
        find_episode(warehouse, "take_a")


def test_an_unknown_name_names_the_nearest_first(warehouse):
    with pytest.raises(
        CurationError, match=r"no episode 'upload_2/tkae_a'\. Nearest: 3 \(lab: upload_2/take_a\)"
    ):
        find_episode(warehouse, "upload_2/tkae_a")


def test_an_empty_warehouse_says_what_to_run(tmp_path):
    empty = Warehouse(str(tmp_path))
    empty.create()
    with pytest.raises(CurationError, match=r"nothing was ingested yet\. Run: dyna-assets worker --once"):
        find_episode(empty, "anything")
