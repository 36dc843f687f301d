"""The Dagster asset graph over Delta Lake and Postgres: from a landing folder to manifests."""

from importlib.metadata import version

__version__ = version("dyna-data-engine")
"""Of the distribution; stamped on every row as `pipeline_version`."""
