"""The only place where assets, jobs, sensors and resources meet. Dagster loads this module."""

from __future__ import annotations

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_duckdb import DuckDBResource

from dyna_assets.assets.jobs import CURATE, PROFILE_JOBS, TABLES_JOB
from dyna_assets.assets.landing import landing_sensor
from dyna_assets.assets.manifests import manifest
from dyna_assets.assets.resources import ShardResource, WorkspaceResource
from dyna_assets.assets.shard_assets import SHARD_ASSETS
from dyna_assets.assets.tables import TABLE_ASSETS
from dyna_assets.home import Home
from dyna_assets.profiles import SAFE
from dyna_assets.settings import Settings


def build(home: Home) -> dg.Definitions:
    """The definitions for one DYNA_HOME. Opens nothing: resources do, when a run or a tick needs them."""
    settings = Settings.load(home)
    s3 = S3Resource(**settings.s3.resource_options())
    workspace = WorkspaceResource(home=str(home.path), s3=s3)
    return dg.Definitions(
        assets=[*SHARD_ASSETS, *TABLE_ASSETS, manifest],
        jobs=[*PROFILE_JOBS.values(), CURATE, TABLES_JOB],
        sensors=[landing_sensor(PROFILE_JOBS[SAFE])],
        resources={
            "workspace": workspace,
            "shard": ShardResource(workspace=workspace),
            "duckdb": DuckDBResource(database=":memory:"),
            "s3": s3,
        },
        # One process per run: six empty steps take 4.5 s in it and 27 s in a process each.
        executor=dg.in_process_executor,
    )


defs = build(Home.from_env())
