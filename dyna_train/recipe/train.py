"""Train the small world-action model on a manifest, in one process or under torchrun.

    python -m dyna_train.recipe.train config.toml

`out` receives metrics.jsonl (a line a step), checkpoints/ and summary.json. Run again, it goes on from the
newest checkpoint there: model, optimizer, place in the data; random numbers are a function of the step.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import typer
from pydantic import Field, PositiveFloat, PositiveInt
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from dyna_train.config import Config, load_config
from dyna_train.errors import BadInput, DynaError
from dyna_train.files import publish
from dyna_train.loader import EpisodeDataset, EpisodeSampler
from dyna_train.manifest import Manifest
from dyna_train.program import run_program
from dyna_train.recipe.model import PATCH, WorldActionModel
from dyna_train.window import WindowSpec
from dyna_train.world import World

PARTS = ("sampler", "model", "optimizer")  # what a checkpoint holds of a run


class RecipeConfig(Config):
    """One training run; paths are relative to the working directory."""

    manifest: str
    out: str
    root: str | None = None  # where the episode files lie, if not where the manifest says
    steps: PositiveInt = 200  # of the optimizer
    batch_size: PositiveInt = 16  # over all ranks
    horizon: PositiveInt = 16  # actions in a chunk
    ahead: PositiveInt = 4  # the next frame is this many grid steps away
    patches: tuple[PositiveInt, PositiveInt] = (3, 4)  # frames are scaled to rows x columns of 32 pixels
    width: int = Field(default=128, gt=0, multiple_of=32)
    learning_rate: PositiveFloat = 1e-3
    checkpoint_every: PositiveInt = 50  # optimizer steps
    keep_checkpoints: PositiveInt = 3  # the newest ones
    workers: int = Field(default=0, ge=0)  # loader processes per rank
    seed: int = Field(default=0, ge=0)


class Run:
    """A training run in this process; `step` counts the optimizer steps taken."""

    def __init__(self, config: RecipeConfig, world: World) -> None:
        self.config, self.world, self.step = config, world, 0
        manifest = Manifest.open(config.manifest)
        if not all(getattr(manifest.info.features, name) for name in ("cameras", "state", "action")):
            raise BadInput(f"{manifest.path}: this recipe needs cameras, state and action; one is missing")
        spec = WindowSpec(frames=(0, config.ahead), state=(0,), action=tuple(range(config.horizon)))
        rows, columns = config.patches
        dataset = EpisodeDataset(manifest, spec, size=(rows * PATCH, columns * PATCH), root=config.root)
        self.sampler = EpisodeSampler(manifest, batch_size=config.batch_size, world=world, seed=config.seed)
        self.loader = DataLoader(dataset, batch_sampler=self.sampler, num_workers=config.workers)
        self.device = torch.device(f"cuda:{world.local_rank}" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(config.seed)  # equal weights on all ranks
        num_patches = len(dataset.cameras) * rows * columns
        self.shape = {"num_patches": num_patches, "horizon": config.horizon, "width": config.width}
        self.model = WorldActionModel(manifest.info, **self.shape).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.learning_rate)

    def train(self) -> Iterator[dict[str, Any]]:
        """Take the steps that are left; yields each step's metrics, losses averaged over all ranks."""
        model = DistributedDataParallel(self.model) if self.world.size > 1 else self.model
        batches = (batch for _ in count() for batch in self.loader)  # the sampler counts the epochs
        while self.step < self.config.steps:
            began = time.perf_counter()
            batch = next(batches)
            torch.manual_seed(zlib.crc32(f"{self.config.seed} {self.step} {self.world.rank}".encode()))
            for name, value in batch.items():
                batch[name] = value.to(self.device) if isinstance(value, torch.Tensor) else value
            losses = model(batch)
            self.optimizer.zero_grad()
            losses.sum().backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.sampler.step()
            self.step += 1
            mean = losses.detach() / self.world.size
            if self.world.size > 1:
                distributed.all_reduce(mean)
            if not mean.isfinite().all():  # equal on all ranks, so all of them stop here
                raise DynaError(f"step {self.step}: the losses are {mean.tolist()}; lower learning_rate?")
            metrics = {"step": self.step, "loss": mean.sum().item(), "seconds": time.perf_counter() - began}
            parts = {"action_loss": mean[0].item(), "frame_loss": mean[1].item()}
            yield {**metrics, **parts, "anchors": batch["anchor"].tolist()}

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        with publish(path) as part:
            states = {name: getattr(self, name).state_dict() for name in PARTS}
            torch.save({"step": self.step, "shape": self.shape, **states}, part)

    def resume(self, path: Path) -> None:
        """Stand where the checkpoint at `path` was written. Raises BadInput if it is of another run."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        if state["shape"] != self.shape:
            raise BadInput(
                f"{path}: a model of {state['shape']}, this run's is {self.shape}; give another out"
            )
        for name in PARTS:
            getattr(self, name).load_state_dict(state[name])
        self.step = state["step"]


def checkpoints(out: Path) -> list[Path]:
    """The whole checkpoints of a run, the newest one last."""
    return sorted((out / "checkpoints").glob("step-*.pt"))


def train(config: RecipeConfig, world: World) -> None:
    """Run `config` to its last step, from the newest checkpoint in `out` if there is one."""
    if world.size > 1:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    run, out = Run(config, world), Path(config.out)
    for newest in checkpoints(out)[-1:]:
        run.resume(newest)
    resumed_from = run.step
    out.mkdir(parents=True, exist_ok=True)
    for metrics in run.train():
        if world.rank == 0:
            with (out / "metrics.jsonl").open("a") as log:
                log.write(json.dumps(metrics) + "\n")
            if run.step % config.checkpoint_every == 0 or run.step == config.steps:
                run.save(out / "checkpoints" / f"step-{run.step:08d}.pt")
                for old in checkpoints(out)[: -config.keep_checkpoints]:
                    old.unlink()
                print(f"step {run.step} of {config.steps}: loss {metrics['loss']:.4f}", flush=True)
    if world.rank == 0:
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        taken = {line["step"]: line for line in lines}  # a step taken again after a restart has two lines
        losses = [taken[step]["loss"] for step in sorted(taken)]
        ends = {"loss_first": fmean(losses[:5]), "loss_last": fmean(losses[-5:])}  # single batches scatter
        rate = config.batch_size / median(line["seconds"] for line in taken.values())
        summary = {"steps": len(losses), "ranks": world.size, "resumed_from": resumed_from, **ends}
        with publish(out / "summary.json") as part:
            part.write_text(json.dumps({**summary, "samples_per_s": rate}, indent=2))
        print("loss {loss_first:.4f} -> {loss_last:.4f}".format(**ends), f"at {rate:.1f} samples/s")
    if world.size > 1:
        distributed.destroy_process_group()


def main(config: Path) -> None:
    """Train as the TOML file CONFIG says."""
    train(load_config(RecipeConfig, config), World.from_env())


if __name__ == "__main__":
    run_program(lambda: typer.run(main))
