"""The global order of training samples, cut into batches for one rank.

All ranks share one order of anchors: epoch e visits every anchor at the position a permutation keyed by
(seed, e) gives it. Position g of that order goes to rank g % world, and `batch_size` counts the samples of
all ranks together, so the world may change at a resume and the order does not.

The last incomplete batch of an epoch is left out, on every rank alike: `num_dropped` anchors, other ones
each epoch. To see every anchor exactly once (validation), iterate the dataset without a sampler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from dyna_train.errors import BadInput
from dyna_train.loader.order import Permutation
from dyna_train.manifest import Manifest
from dyna_train.world import World

STATE_VERSION = 1
_BLOCK = 4096  # positions permuted at once: small calls of the permutation cost a hundred times more each


class EpisodeSampler(Sampler[list[int]]):
    """Batches of anchors for one rank: `DataLoader(dataset, batch_sampler=sampler)`.

    The loader runs ahead of training, so only the training loop knows what was used: call `step` once for
    each batch trained on. Iterating starts after the last batch so reported, and ends with the epoch; the
    step that completes an epoch begins the next one.
    """

    def __init__(
        self, manifest: Manifest, *, batch_size: int, world: World | None = None, seed: int = 0
    ) -> None:
        """batch_size: samples of one step over all ranks, a multiple of the world size.

        Raises BadInput for a batch that cannot be shared out or that the manifest cannot fill.
        """
        self._world = World() if world is None else world
        self._manifest = manifest
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self.consumed = 0
        if batch_size < 1 or batch_size % self._world.size:
            raise BadInput(
                f"batch_size {batch_size} counts the samples of all ranks; expected a positive multiple of "
                f"the {self._world.size} ranks"
            )
        if manifest.num_steps < batch_size:
            raise BadInput(
                f"{manifest.path}: {manifest.num_steps} anchors cannot fill one batch of {batch_size}; lower "
                "batch_size or curate more episodes"
            )

    @property
    def num_dropped(self) -> int:
        """Anchors left out at the end of this epoch."""
        return (self._manifest.num_steps - self.consumed) % self.batch_size

    def __len__(self) -> int:
        """Batches left in this epoch."""
        return (self._manifest.num_steps - self.consumed) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        """Anchors of this rank, batch by batch, from the first batch not yet reported to the epoch's end."""
        order = Permutation.of(self._manifest.num_steps, seed=self.seed, epoch=self.epoch)
        stop = self.consumed + len(self) * self.batch_size
        num_mine = self.batch_size // self._world.size
        block = max(1, _BLOCK // num_mine) * self.batch_size
        for start in range(self.consumed, stop, block):
            mine = np.arange(start + self._world.rank, min(start + block, stop), self._world.size)
            yield from order(mine).reshape(-1, num_mine).tolist()

    def step(self) -> None:
        """Report that training has used one batch."""
        self.consumed += self.batch_size
        if len(self) == 0:
            self.epoch, self.consumed = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Where training stands; equal on all ranks, and valid for any world size."""
        return {
            "version": STATE_VERSION,
            "manifest": self._manifest.sha256,
            "num_anchors": self._manifest.num_steps,
            "seed": self.seed,
            "epoch": self.epoch,
            "consumed": self.consumed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where `state` was taken; costs nothing however far that is.

        Raises BadInput if it was taken over another manifest, another seed, or by another sampler version.
        """
        mine = self.state_dict()
        for key in ("version", "manifest", "num_anchors", "seed"):
            if state.get(key) != mine[key]:
                raise BadInput(
                    f"cannot resume the data position: the checkpoint has {key} {state.get(key)!r}, this run "
                    f"has {mine[key]!r}. Resume with what the checkpoint was trained on, or start a new run"
                )
        epoch, consumed = int(state["epoch"]), int(state["consumed"])
        if epoch < 0 or not 0 <= consumed < mine["num_anchors"]:
            raise BadInput(
                f"cannot resume the data position: epoch {epoch}, consumed {consumed} is no place in it"
            )
        self.epoch, self.consumed = epoch, consumed
        if len(self) == 0:  # a larger batch than before finds nothing whole left of this epoch
            self.epoch, self.consumed = epoch + 1, 0
