"""The manifest: one Arrow IPC file that lists the rows of one experiment. `schema` describes it."""

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
    "Manifest",
    "ManifestInfo",
    "ManifestRow",
    "ManifestSlice",
    "Statistics",
    "Totals",
    "VectorStatistics",
    "write_manifest",
]
