"""The warehouse's tables as assets: unpartitioned, each kept in order and reported by materializing it."""

# No postponed annotations here: Dagster reads those of an asset's or sensor's parameters as objects.

import dagster as dg

from dyna_assets.assets.resources import WorkspaceResource
from dyna_assets.assets.shard_assets import ASSET_OF, OWNERS
from dyna_assets.shard_run import WRITES
from dyna_assets.warehouse.tables import TABLES, Table

MAX_SMALL_FILES = 64


def table_asset(table: Table) -> dg.AssetsDefinition:
    """The asset of one table, downstream of every step that appends to it."""
    writers = [step for step, names in WRITES.items() if table.name in names] or list(WRITES)
    deps = [dg.AssetDep(ASSET_OF[step], partition_mapping=dg.AllPartitionMapping()) for step in writers]

    @dg.asset(
        key=["warehouse", table.name],
        deps=deps,
        group_name="warehouse",
        kinds={"deltalake"},
        owners=OWNERS,
        description=table.grain,
    )
    def report(workspace: WorkspaceResource) -> dg.MaterializeResult[None]:
        """Compact the table when small files have piled up, and say what it holds."""
        warehouse = workspace.open().warehouse
        compacted = warehouse.compact(table.name, min_files=MAX_SMALL_FILES)
        pinned = warehouse.pin(table.name)
        return dg.MaterializeResult(
            metadata={
                "num_rows": pinned.num_rows,
                "num_files": len(pinned.files),
                "files_compacted": compacted,
                "delta_version": pinned.version,
                "location": warehouse.uri(table.name),
                "columns": dg.MetadataValue.table(
                    [
                        dg.TableRecord({"column": field.name, "type": str(field.type)})
                        for field in table.schema
                    ]
                ),
            }
        )

    return report


TABLE_ASSETS = [table_asset(table) for table in TABLES.values()]
