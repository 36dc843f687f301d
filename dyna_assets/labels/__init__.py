"""Labels: facts about an episode that nobody's training depends on, found again whenever their code changes."""

from dyna_assets.labels import digest, lag, performance, segments, text
from dyna_assets.labels.registry import LABELLERS, Annotation, Labelled, annotate, labeller, labeller_versions

__all__ = [
    "LABELLERS",
    "Annotation",
    "Labelled",
    "annotate",
    "digest",
    "labeller",
    "labeller_versions",
    "lag",
    "performance",
    "segments",
    "text",
]
