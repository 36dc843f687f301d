"""DYNA_HOME and its settings file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dyna_assets.catalog.account import may_reach
from dyna_assets.errors import SetupError
from dyna_assets.home import Home
from dyna_assets.settings import S3Settings, Settings
from dyna_train.errors import ConfigError

NOBODY = 65534


def test_home_is_the_folder_that_the_variable_names(tmp_path: Path) -> None:
    assert Home.from_env({"DYNA_HOME": str(tmp_path / "here")}).path == tmp_path / "here"


@pytest.mark.parametrize("env", [{}, {"DYNA_HOME": ""}])
def test_home_without_the_variable_is_in_the_users_folder(env: dict[str, str]) -> None:
    assert Home.from_env(env).path == Path.home().resolve() / ".dyna"


def test_one_folder_has_one_name_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert Home.at("link") == Home.at("real") == Home.at(tmp_path / "real" / ".." / "link")


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SetupError, match=r"loop.*Set DYNA_HOME to a folder that can be written"):
        Home.at(tmp_path / "loop").prepare()


def test_prepare_makes_all_rooms_and_may_be_repeated(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "a" / "b").prepare().prepare()
    assert sorted(path.name for path in home.path.iterdir()) == [
        "dagster",
        "lake",
        "landing",
        "postgres",
        "runs",
        "sources",
    ]


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder")
    with pytest.raises(SetupError, match=r"home: expected a folder .* found: File exists"):
        Home.at(tmp_path / "home").prepare()


def test_a_home_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SetupError, match=r"file/home: expected .* found: Not a directory.*DYNA_HOME"):
        Home.at(tmp_path / "file" / "home").prepare()


def test_a_home_on_a_file_system_that_takes_no_files_is_refused() -> None:
    """Also for root, whom permission bits do not stop."""
    if not Path("/proc/self").exists():
        pytest.skip("no /proc on this system")
    with pytest.raises(
        SetupError, match=r"/proc/dyna: expected a folder that user id \d+ can write, found: "
    ):
        Home.at("/proc/dyna").prepare()


def test_a_read_only_home_is_refused_for_an_ordinary_user(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
    said = _prepare_as_ordinary_user(home)
    assert f"SetupError: {home}" in said
    assert "found: Permission denied" in said
    assert "set DYNA_HOME to another folder" in said


def _prepare_as_ordinary_user(home: Path) -> str:
    """What `prepare` says; root drops to another user first (imports are done by then)."""
    program = (
        "import os, sys\n"
        "from dyna_assets.home import Home\n"
        "home = Home.at(sys.argv[1])\n"
        f"if os.geteuid() == 0: os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try: home.prepare()\n"
        "except Exception as error: print(type(error).__name__ + ':', error)\n"
    )
    if os.geteuid() == 0:  # the folders above are root's own: let the other user come as far as the home
        for folder in (home.parent, home.parent.parent, home.parent.parent.parent):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    return subprocess.run(
        [sys.executable, "-c", program, str(home)], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("mode", "uid", "is_reached"),
    [(0o700, "owner", True), (0o700, "other", False), (0o711, "other", True), (0o077, "owner", False)],
)
def test_reach_follows_the_mode_of_the_folders_above(
    tmp_path: Path, mode: int, uid: str, is_reached: bool
) -> None:
    folder = tmp_path / "closed"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner").chmod(0o755)
    owner = folder.stat().st_uid
    folder.chmod(mode)
    above_is_open = all(parent.stat().st_mode & stat.S_IXOTH for parent in folder.parents)
    reached = may_reach(folder / "inner", owner if uid == "owner" else owner + 1, -1)
    folder.chmod(0o755)
    assert reached == (is_reached and (uid == "owner" or above_is_open))


def test_settings_have_defaults_without_a_file(home: Home) -> None:
    settings = Settings.load(home)
    assert settings.database_url is None
    assert settings.lake == str(home.lake)
    assert settings.workers >= 1
    assert settings.shards.max_episodes == 512
    assert settings.shards.max_bytes == 64 * 2**30
    assert settings.storage_options(settings.lake) == {}


def test_settings_come_from_the_file(home: Home) -> None:
    home.settings.write_text(
        'lake = "s3://lake/"\nworkers = 3\n[s3]\nendpoint_url = "http://store:9000"\nregion_name = "eu-1"\n'
        "[shards]\nmax_episodes = 7\n"
    )
    settings = Settings.load(home)
    assert (settings.lake, settings.workers, settings.shards.max_episodes) == ("s3://lake", 3, 7)
    assert settings.storage_options("s3://lake/x")["endpoint_url"] == "http://store:9000"
    assert settings.storage_options("s3://lake/x")["client_kwargs"] == {"region_name": "eu-1"}


def test_a_relative_lake_is_in_the_home(home: Home) -> None:
    home.settings.write_text('lake = "other"')
    assert Settings.load(home).lake == str(home.path / "other")


def test_an_unknown_setting_is_refused_with_the_nearest_one(home: Home) -> None:
    home.settings.write_text("[shards]\nmax_episode = 3\n")
    with pytest.raises(
        ConfigError, match=r"settings\.toml: unknown key 'shards\.max_episode'; did you mean 'max_episodes'"
    ):
        Settings.load(home)


def test_a_setting_out_of_range_is_refused(home: Home) -> None:
    home.settings.write_text("workers = 0")
    with pytest.raises(ConfigError, match=r"key 'workers' = 0: Input should be greater than or equal to 1"):
        Settings.load(home)


def test_dagsters_s3_resource_and_s3fs_take_the_same_settings() -> None:
    from dagster_aws.s3 import S3Resource
    from s3fs import S3FileSystem

    s3 = S3Settings(
        endpoint_url="http://store:9000", region_name="eu-1", aws_access_key_id="k", aws_secret_access_key="s"
    )
    client = S3Resource(**s3.resource_options()).get_client()
    assert client.meta.endpoint_url == "http://store:9000"
    assert client.meta.region_name == "eu-1"
    fs = S3FileSystem(**s3.storage_options(), skip_instance_cache=True)
    assert (fs.endpoint_url, fs.key, fs.secret) == ("http://store:9000", "k", "s")
    assert s3.delta_options() == {
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "eu-1",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ALLOW_HTTP": "true",
    }
    assert S3Settings().delta_options() == {}
