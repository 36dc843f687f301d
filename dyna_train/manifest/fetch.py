"""A manifest from a store to a local disk, together with what travels beside it."""

from __future__ import annotations

from pathlib import Path

import fsspec

from dyna_train.files import publish
from dyna_train.manifest.gop_tables import gop_tables_path


def fetch_manifest(fs: fsspec.AbstractFileSystem, path: str, local: str | Path) -> Path:
    """Copy the manifest at `path` of `fs`, and the GOP tables beside it if there are any, to `local`.

    The manifest appears last. Raises FileNotFoundError if there is none.
    """
    with publish(local) as part:
        fs.get_file(path, str(part))
        beside = Path(gop_tables_path(local))
        if fs.exists(gop_tables_path(path)):
            with publish(beside) as tables:
                fs.get_file(gop_tables_path(path), str(tables))
        else:
            beside.unlink(missing_ok=True)  # of the manifest that stood here before
    return Path(local)
