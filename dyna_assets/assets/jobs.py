"""One job per run profile, over the same assets."""

from __future__ import annotations

from typing import Any

import dagster as dg

from dyna_assets.assets.manifests import MANIFEST
from dyna_assets.assets.resources import ProfileName
from dyna_assets.assets.shard_assets import ASSET_OF, UPLOADS
from dyna_assets.assets.tables import TABLE_ASSETS
from dyna_assets.profiles import RunProfile, load_profiles


def profile_job(profile: RunProfile) -> Any:
    """The job of one profile: its steps are the selection, its name the resource's configuration."""
    assets = [ASSET_OF[step] for step in profile.steps]
    if "recordings" in profile.steps:
        assets = [UPLOADS, *assets]
    return dg.define_asset_job(
        profile.name,
        selection=dg.AssetSelection.assets(*assets),
        description=profile.description,
        config={"resources": {"shard": {"config": {"profile": ProfileName(profile.name).name}}}},
        tags={"dyna/profile": profile.name, "dagster/priority": str(profile.priority)},
    )


PROFILE_JOBS = {name: profile_job(profile) for name, profile in load_profiles().items()}
CURATE = dg.define_asset_job(
    "curate",
    selection=dg.AssetSelection.assets(MANIFEST),
    description="Build one manifest from the newest version of the warehouse's tables.",
)
TABLES_JOB = dg.define_asset_job(
    "maintain_tables",
    selection=dg.AssetSelection.assets(*TABLE_ASSETS),
    description="Compact the warehouse's tables where small files piled up, and report what they hold.",
)
