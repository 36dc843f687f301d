"""Manifests: one asset, one partition per curation."""

# No postponed annotations here: Dagster reads those of an asset's or sensor's parameters as objects.

import dagster as dg
from dagster_duckdb import DuckDBResource

from dyna_assets.assets.partitions import MANIFESTS
from dyna_assets.assets.resources import WorkspaceResource
from dyna_assets.assets.shard_assets import OWNERS
from dyna_assets.curation.curate import READS, CurationSpec, curate_into_lake

MANIFEST = dg.AssetKey(["manifests", "manifest"])


class CurationConfig(dg.Config):
    """Which episodes the manifest lists: an SQL condition over the corpus, and whether they passed the gates."""

    where: str = "true"
    passed: bool = True
    min_duration_s: float = 0.0


@dg.asset(
    key=MANIFEST,
    deps=[dg.AssetKey(["warehouse", table]) for table in READS],
    partitions_def=MANIFESTS,
    group_name="manifests",
    kinds={"arrow", "duckdb"},
    owners=OWNERS,
    description="One row per stretch of an episode that an experiment trains on, as one memory-mapped Arrow file.",
)
def manifest(
    context: dg.AssetExecutionContext,
    config: CurationConfig,
    workspace: WorkspaceResource,
    duckdb: DuckDBResource,
) -> dg.MaterializeResult[None]:
    """One query over the newest version of each table."""
    spec = CurationSpec(name=context.partition_key, **config.model_dump())
    space = workspace.open()
    with duckdb.get_connection() as connection:
        made = curate_into_lake(spec, space.warehouse, connection, space.settings)
    features = made.info.features
    return dg.MaterializeResult(
        data_version=dg.DataVersion(made.totals.sha256),
        metadata={
            "num_rows": made.totals.num_rows,
            "num_steps": made.totals.num_steps,
            "hours": made.hours,
            "num_rows_without_gop_table": made.num_without_gops,
            "seconds": round(made.seconds, 3),
            "location": made.uri,
            "table_versions": made.info.table_versions,
            "cameras": ", ".join(features.cameras),
            "state_dimensions": len(features.state),
            "action_dimensions": len(features.action),
            "query": dg.MetadataValue.md(f"```sql\n{made.info.query}\n```"),
        },
    )
