"""The manifest: one Arrow IPC file that lists the rows of one experiment. `schema` describes it.

Beside it lies a second one, `gop_tables` describes it, that says where in their files the rows' bytes lie.
"""

from dyna_train.manifest.fetch import fetch_manifest
from dyna_train.manifest.gop_tables import Gops, GopTables, gop_tables_path
from dyna_train.manifest.reader import Manifest, ManifestRow, ManifestSlice
from dyna_train.manifest.schema import (
    INPUT_SCHEMA,
    Camera,
    Features,
    ManifestInfo,
    Statistics,
    Totals,
    VectorStatistics,
)
from dyna_train.manifest.write import write_manifest

__all__ = [
    "INPUT_SCHEMA",
    "Camera",
    "Features",
    "GopTables",
    "Gops",
    "Manifest",
    "ManifestInfo",
    "ManifestRow",
    "ManifestSlice",
    "Statistics",
    "Totals",
    "VectorStatistics",
    "fetch_manifest",
    "gop_tables_path",
    "write_manifest",
]
