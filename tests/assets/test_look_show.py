"""`dyna-assets show` on a real installation: an episode with a black camera, and a cut file."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator

import pytest
import typer
from page_samples import near
from path_house import House, open_house
from PIL import Image
from typer.testing import CliRunner

from dyna_assets.assets.metadata import PICTURE_BYTES, shard_page_metadata
from dyna_assets.commands.show import show
from dyna_assets.errors import CurationError
from dyna_assets.home import Home
from dyna_assets.look.badge import LOOKS
from dyna_assets.look.find import find_episode
from dyna_assets.look.gather import page_facts, shard_facts
from dyna_assets.look.show import episode_page, shard_page
from dyna_assets.profiles import profile_named
from dyna_assets.quality.policy import limits_in_force
from dyna_assets.shard_session import open_shard
from dyna_train.errors import BadInput

APP = typer.Typer()
APP.command()(show)
STEPS = ("recordings", "gate_before", "episodes", "gate_after")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]) -> Iterator[House]:
    """A house in which two uploads went through all steps."""
    home = Home.at(tmp_path_factory.mktemp("shown")).prepare()
    with open_house(home, new_database()) as house:
        house.simulate(2, faults=["black_camera", "truncated_file"])
        house.workspace.register_landed()
        with open_shard(
            house.workspace, "shard-000000", profile_named("ingest_online"), run_id="test"
        ) as run:
            assert run is not None
            for step in STEPS:
                run.run(step)
        yield house


def page_of(house: House, text: str) -> Image.Image:
    return episode_page(house.workspace, text)


def outcome_of(house: House, text: str) -> str:
    """The verdict that the page shows as the ground of its plate."""
    page = page_of(house, text)
    (outcome,) = [name for name, look in LOOKS.items() if near(page, (76, 20), look.ground)]
    return outcome


def test_the_page_of_a_black_camera_rejects_and_says_so_in_numbers(shown):
    workspace = shown.workspace
    number = find_episode(workspace.warehouse, "black_camera")
    facts = page_facts(workspace.warehouse, number, limits_in_force(None, workspace.sources()))
    assert facts.findings[0].check == "camera.dark" and facts.findings[0].severity == "reject"
    assert facts.findings[0].value < facts.findings[0].limit
    assert facts.content_hash and set(facts.traces) and facts.num_checked > 20
    assert outcome_of(shown, "black_camera") == "reject"
    assert page_of(shown, "black_camera").height > 1000


def test_an_upload_that_could_not_be_read_has_a_page_with_its_reason(shown):
    workspace = shown.workspace
    number = find_episode(workspace.warehouse, "truncated_file")
    facts = page_facts(workspace.warehouse, number, limits_in_force(None, workspace.sources()))
    assert facts.content_hash == "" and "cut while being recorded" in facts.headline
    assert outcome_of(shown, "truncated_file") == "reject"
    assert page_of(shown, "truncated_file").height < 300


def test_the_worst_episodes_of_the_shard_come_first(shown):
    workspace = shown.workspace
    limits_of = limits_in_force(None, workspace.sources())
    facts = shard_facts(workspace.warehouse, 0, limits_of, most=2)
    assert facts.num_rows == sum(facts.outcomes.values()) == 2
    assert {one.outcome for one in facts.worst} == {"reject"} and facts.worst[0].findings
    assert 0 < facts.num_checked < facts.num_checks
    assert shard_page(workspace, "shard-000000", 3).height > 2 * 92


def test_a_shard_that_is_none_is_refused_and_one_without_episodes_has_a_page(shown):
    with pytest.raises(BadInput, match=r"'7' is not a shard key; expected the form 'shard-000007'"):
        shard_page(shown.workspace, "7", 3)
    assert shard_page(shown.workspace, "shard-000007", 3).height < 300


def test_an_episode_that_no_step_has_met_is_refused(shown):
    with pytest.raises(CurationError, match=r"no episode 99: no step has met it"):
        page_facts(shown.workspace.warehouse, 99, limits_in_force(None, {}))


def test_a_file_that_is_gone_stands_on_the_page_of_its_episode(shown):
    workspace = shown.workspace
    name = next(row["name"] for row in shown.rows("episodes"))
    (path,) = (shown.workspace.home.lake / "episodes" / "shard-000000").glob(
        f"{find_episode(workspace.warehouse, name)}-*.mcap"
    )
    hidden = path.rename(path.with_suffix(".hidden"))
    try:
        assert page_of(shown, name).height < 900
        assert outcome_of(shown, name) in ("reject", "error")
    finally:
        hidden.rename(path)


def test_the_command_writes_pages_of_episodes_and_shards(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("DYNA_HOME", str(shown.workspace.home.path))
    for asked, name, form in (
        (["black_camera"], "page.png", "PNG"),
        (["--shard", "shard-000000", "--worst", "2"], "shard.jpg", "JPEG"),
    ):
        done = CliRunner().invoke(APP, [*asked, "--out", str(tmp_path / name)])
        assert done.exit_code == 0 and name in done.stdout.replace("\n", "")
        with Image.open(tmp_path / name) as picture:
            assert (picture.format, picture.width) == (form, 1440)


def test_the_command_writes_into_no_folder_that_is_not_there_and_over_none_that_is(tmp_path):
    (tmp_path / "dir.png").mkdir()
    for out, message in (
        (tmp_path / "no/such/page.png", rf"there is no folder {tmp_path}/no/such; make it"),
        (tmp_path / "dir.png", r"dir\.png: a folder; name a file in it, for example .*dir\.png/NAME"),
        (tmp_path, "a folder; name a file in it"),
        (tmp_path / "page", r"expected a name that ends in \.png, \.jpg, \.jpeg, found ''"),
    ):
        done = CliRunner().invoke(APP, ["black_camera", "--out", str(out)])
        assert isinstance(done.exception, BadInput) and re.search(message, str(done.exception))
    assert [path.name for path in tmp_path.rglob("*")] == ["dir.png"]


@pytest.mark.parametrize("asked", [[], ["black_camera", "--shard", "shard-000000"]])
def test_the_command_wants_an_episode_or_a_shard(asked, tmp_path):
    done = CliRunner().invoke(APP, [*asked, "--out", str(tmp_path / "page.png")])
    assert isinstance(done.exception, BadInput)
    assert str(done.exception) == "say which: an EPISODE, or --shard KEY (and not both)"


def test_the_picture_of_a_materialization_is_small_and_whole(shown):
    with open_shard(shown.workspace, "shard-000000", profile_named("ingest_online"), run_id="test") as run:
        assert run is not None
        text = shard_page_metadata(run)["worst_episodes"].value
    head, _, data = text.removesuffix(")").partition("base64,")
    assert head == "![worst episodes](data:image/webp;" and len(text) < 50_000
    assert len(base64.b64decode(data)) <= PICTURE_BYTES
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size[0] == 1000
