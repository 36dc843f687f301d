"""What a source may say about its labels: the table [labels] of its TOML."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dyna_train.config import Config

Dotted = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""'module:Class', as entry points are written."""


class LabelOptions(Config):
    """Models that a source's labels are made with, by the dotted names of their classes."""

    captioner: Dotted = Field(
        default="dyna_assets.labels.text:TaskCaptioner", description="module:Class of a Captioner"
    )
    embedder: Dotted | None = Field(
        default=None, description="module:Class of an Embedder; without one there are no embeddings"
    )
