"""What a person may set for a whole installation: settings.toml in DYNA_HOME."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field, StrictInt, field_validator

from dyna_assets.home import Home
from dyna_train.config import Config, load_config, parse_config

_S3 = ("s3://", "s3a://")


class S3Settings(Config):
    """An S3-compatible store. Field names are those of dagster-aws' S3Resource; None leaves boto's own choice.

    Keys are better left to the environment or a profile than written here.
    """

    endpoint_url: str | None = None
    region_name: str | None = None
    profile_name: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None
    aws_session_token: str | None = None
    use_unsigned_session: bool = False
    verify: bool = True
    max_attempts: int = Field(default=5, ge=1)

    def resource_options(self) -> dict[str, Any]:
        """Keyword arguments of dagster-aws' S3Resource."""
        return self.model_dump(exclude_none=True)

    def storage_options(self) -> dict[str, Any]:
        """Keyword arguments of s3fs.S3FileSystem, for the same store and identity."""
        named = {
            "endpoint_url": self.endpoint_url,
            "profile": self.profile_name,
            "key": self.aws_access_key_id,
            "secret": self.aws_secret_access_key,
            "token": self.aws_session_token,
        }
        client: dict[str, Any] = {} if self.region_name is None else {"region_name": self.region_name}
        return {name: value for name, value in named.items() if value is not None} | {
            "anon": self.use_unsigned_session,
            "client_kwargs": client if self.verify else client | {"verify": False},
            "config_kwargs": {"retries": {"max_attempts": self.max_attempts, "mode": "standard"}},
        }

    def delta_options(self) -> dict[str, str]:
        """Storage options of delta-rs for the same store and identity; a local table ignores them."""
        named = {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": self.region_name,
            "AWS_PROFILE": self.profile_name,
            "AWS_ACCESS_KEY_ID": self.aws_access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.aws_secret_access_key,
            "AWS_SESSION_TOKEN": self.aws_session_token,
            "AWS_ALLOW_HTTP": "true" if (self.endpoint_url or "").startswith("http://") else None,
            "AWS_SKIP_SIGNATURE": "true" if self.use_unsigned_session else None,
            "ALLOW_INVALID_CERTIFICATES": None if self.verify else "true",
        }
        return {name: value for name, value in named.items() if value is not None}


class ShardLimits(Config):
    """When an open shard is full, and how many shard keys are registered ahead of need.

    max_bytes counts the landed bytes of a shard's episodes.
    """

    max_episodes: int = Field(default=512, ge=1)
    max_bytes: int = Field(default=64 << 30, ge=1)
    quiet_s: float = Field(default=3600.0, ge=0)
    key_block: int = Field(default=1000, ge=1)


def _num_cores() -> int:
    """Cores this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Settings(Config):
    """One installation.

    database_url: a PostgreSQL URL; None starts the embedded server.
    lake: folder (relative to DYNA_HOME) or s3:// URI of tables, episode files and manifests.
    workers: processes that work on the rows of one shard.
    """

    lake: str
    database_url: str | None = None
    workers: StrictInt = Field(default_factory=_num_cores, ge=1)
    s3: S3Settings = S3Settings()
    shards: ShardLimits = ShardLimits()

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("postgresql://", "postgresql+psycopg2://")):
            raise ValueError(
                "expected a URL like postgresql://user@host/database; leave it out for the embedded server"
            )
        return url

    @field_validator("lake")
    @classmethod
    def _is_folder_or_s3(cls, lake: str) -> str:
        if "://" in lake and not lake.startswith("s3://"):
            raise ValueError("expected a folder or s3://bucket/prefix")
        return lake.rstrip("/")

    @classmethod
    def load(cls, home: Home) -> Settings:
        """From <home>/settings.toml; all defaults without it. Raises ConfigError."""
        written = load_config(_Written, home.settings) if home.settings.exists() else _Written()
        chosen = written.model_dump(exclude_unset=True)
        chosen["lake"] = _absolute(chosen.get("lake", str(home.lake)), home)
        return parse_config(cls, chosen, where=str(home.settings))

    def storage_options(self, uri: str) -> dict[str, Any]:
        """What fsspec needs to open `uri`: the S3 settings for s3://, nothing for anything else."""
        return self.s3.storage_options() if uri.startswith(_S3) else {}


def _absolute(place: str, home: Home) -> str:
    return place.rstrip("/") if "://" in place else str(home.path / Path(place).expanduser())


class _Written(Settings):
    """The file: as Settings, but nothing is required."""

    lake: str = ""
