"""Dagster resources: the open workspace, and a run's hold on its shard."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster_aws.s3 import S3Resource
from pydantic import PrivateAttr

from dyna_assets.home import Home
from dyna_assets.profiles import SAFE, load_profiles, profile_named
from dyna_assets.settings import S3Settings
from dyna_assets.shard_run import ShardRun
from dyna_assets.shard_session import open_shard
from dyna_assets.workspace import Workspace

ProfileName = enum.Enum("ProfileName", {name: name for name in load_profiles()}, type=str)  # type: ignore[misc]


class WorkspaceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The workspace of a DYNA_HOME. `s3` is the store that s3:// landing folders and lakes lie in."""

    home: str
    s3: S3Resource

    def open(self) -> Workspace:
        """The open workspace, one per process and store; starts the database if need be."""
        options = {name: getattr(self.s3, name) for name in S3Settings.model_fields}
        return opened(self.home, S3Settings(**options))


@functools.cache
def opened(home: str, s3: S3Settings | None = None) -> Workspace:
    """The workspace of the home at `home`; the same one for every caller of this process."""
    return Workspace.open(Home.at(home), s3)


class ShardResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The run's hold on the shard of its partition: its lock, its number, its profile.

    Taken once for a whole run, which the in-process executor guarantees. skip_checks: names or patterns of
    quality checks that this run's gates leave out.
    """

    workspace: WorkspaceResource
    profile: ProfileName = ProfileName(SAFE)
    skip_checks: list[str] = []  # noqa: RUF012  Dagster reads it as configuration

    _run: ShardRun | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[ShardResource]:
        """Hold the shard as long as the run lives."""
        run = context.run
        key = run.tags.get("dagster/partition") if run else None
        if run is None or key is None:
            raise dg.Failure("expected a run of one shard partition; choose a partition (shard-000000, ...)")
        profile = profile_named(self.profile.value, skip_checks=self.skip_checks)
        with open_shard(self.workspace.open(), key, profile, run_id=run.run_id) as held:
            self._run = held
            yield self

    @property
    def run(self) -> ShardRun | None:
        """The materialization; None for a shard that holds nothing yet."""
        return self._run
