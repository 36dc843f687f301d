"""From manifest rows to training samples. Importing this loads torch."""

from dyna_train.loader.dataset import EpisodeDataset
from dyna_train.loader.order import Permutation
from dyna_train.loader.sampler import EpisodeSampler

__all__ = ["EpisodeDataset", "EpisodeSampler", "Permutation"]
