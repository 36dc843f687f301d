from __future__ import annotations

import json
import resource
import threading
import time

import psutil
import pytest
import torch
from small_corpus import build

from dyna_cluster.launch import launch
from dyna_train.config import load_config
from dyna_train.errors import BadInput, ConfigError, DynaError
from dyna_train.manifest import Manifest
from dyna_train.recipe.model import WorldActionModel
from dyna_train.recipe.train import RecipeConfig, Run, checkpoints, train
from dyna_train.world import World


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return build(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(autouse=True)
def _one_thread():
    """Several threads add in several orders, and cost more than they save on pictures this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config_of(corpus, out, **changes):
    small = {"steps": 6, "batch_size": 4, "horizon": 5, "patches": (1, 2), "width": 32, "checkpoint_every": 3}
    return RecipeConfig(manifest=str(corpus.manifest), out=str(out), **{**small, **changes})


def metrics_of(out):
    """(anchors, losses) of each step."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["anchors"], line["action_loss"], line["frame_loss"]) for line in lines]


def summary_of(out):
    return json.loads((out / "summary.json").read_text())


def test_a_resumed_run_sees_the_same_anchors_and_takes_the_same_losses_as_an_uninterrupted_one(
    corpus, tmp_path
):
    # 71 anchors in batches of 12 are 5 steps: the stop at 7 lies in the second epoch
    options = {"batch_size": 12, "checkpoint_every": 4}
    train(config_of(corpus, tmp_path / "whole", steps=12, **options), World())
    train(config_of(corpus, tmp_path / "parts", steps=7, **options), World())
    train(config_of(corpus, tmp_path / "parts", steps=12, **options), World())
    assert metrics_of(tmp_path / "parts") == metrics_of(tmp_path / "whole")
    assert summary_of(tmp_path / "parts")["resumed_from"] == 7
    one, other = (torch.load(tmp_path / run / "checkpoints/step-00000012.pt") for run in ("whole", "parts"))
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])
    assert one["sampler"] == other["sampler"]


def test_steps_lost_by_a_crash_are_taken_again_and_count_once(corpus, tmp_path):
    train(config_of(corpus, tmp_path / "whole", steps=8, checkpoint_every=4), World())
    run = Run(config_of(corpus, tmp_path / "crash", steps=8), World())
    lines = []
    for metrics in run.train():
        lines.append(json.dumps(metrics) + "\n")
        if run.step == 4:
            run.save(tmp_path / "crash/checkpoints/step-00000004.pt")
        if run.step == 6:
            break  # two steps after the checkpoint
    (tmp_path / "crash/metrics.jsonl").write_text("".join(lines))
    train(config_of(corpus, tmp_path / "crash", steps=8, checkpoint_every=4), World())
    assert [step for step, *_ in metrics_of(tmp_path / "crash")] == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]
    whole, crash = summary_of(tmp_path / "whole"), summary_of(tmp_path / "crash")
    assert (crash["steps"], crash["resumed_from"]) == (8, 4)
    assert (crash["loss_first"], crash["loss_last"]) == (whole["loss_first"], whole["loss_last"])


def test_a_finished_run_started_again_does_nothing(corpus, tmp_path):
    train(config_of(corpus, tmp_path), World())
    before = metrics_of(tmp_path)
    train(config_of(corpus, tmp_path), World())
    assert metrics_of(tmp_path) == before
    assert summary_of(tmp_path)["resumed_from"] == 6


def test_the_newest_checkpoints_stay_and_none_goes_before_the_next_is_whole(corpus, tmp_path):
    options = {"checkpoint_every": 1, "keep_checkpoints": 2}
    train(config_of(corpus, tmp_path, steps=4, **options), World())
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000003.pt", "step-00000004.pt"]
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))  # as a disk that fills up meanwhile
    try:
        with pytest.raises(RuntimeError, match=r"inline_container|PytorchStreamWriter"):
            train(config_of(corpus, tmp_path, steps=6, **options), World())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000003.pt", "step-00000004.pt"]
    train(config_of(corpus, tmp_path, steps=6, **options), World())
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000005.pt", "step-00000006.pt"]
    assert summary_of(tmp_path)["resumed_from"] == 4


def test_the_losses_go_down_on_what_can_be_learned(corpus, tmp_path):
    train(
        config_of(corpus, tmp_path, steps=60, batch_size=16, learning_rate=3e-3, checkpoint_every=60), World()
    )
    metrics = metrics_of(tmp_path)
    for part in (2, 3):
        first, last = (sum(line[part] for line in lines) for lines in (metrics[:5], metrics[-5:]))
        assert last < 0.5 * first
    summary = summary_of(tmp_path)
    assert summary["loss_last"] < 0.5 * summary["loss_first"]
    assert summary["samples_per_s"] > 0
    assert (summary["steps"], summary["ranks"]) == (60, 1)


def kill_a_rank_once(checkpoint, killed):
    """Wait for `checkpoint`, then kill one rank of the job below this process."""
    while not checkpoint.exists():
        time.sleep(0.01)
    below = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    ranks = [
        one for one in below if one.cmdline()[-2] == "dyna_train.recipe.train" and len(one.cmdline()) < 6
    ]
    ranks[0].kill()
    killed.append(ranks[0].pid)


def test_two_ranks_share_one_order_through_a_killed_rank_and_a_restart(corpus, tmp_path):
    out = tmp_path / "two"
    config = config_of(corpus, out, steps=60, keep_checkpoints=20)  # the first one stays to be seen
    toml = tmp_path / "config.toml"
    toml.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config if value is not None))
    assert load_config(RecipeConfig, toml) == config
    killed: list[int] = []
    killer = threading.Thread(
        target=kill_a_rank_once, args=(out / "checkpoints/step-00000003.pt", killed), daemon=True
    )
    killer.start()
    end = launch(
        ["-m", "dyna_train.recipe.train", str(toml)], ranks=2, max_restarts=1, progress=out / "checkpoints"
    )
    killer.join()
    assert len(killed) == 1 and end.attempts == 2
    summary = summary_of(out)
    assert (summary["ranks"], summary["steps"]) == (2, 60)
    assert 3 <= summary["resumed_from"] < 60
    train(config_of(corpus, tmp_path / "one", steps=60), World())
    taken = {step: anchors for step, anchors, *_ in metrics_of(out)}
    for step, whole, *_ in metrics_of(tmp_path / "one"):
        assert taken[step] == whole[::2]  # rank 0 wrote what it saw: every other sample of the global order


def test_loader_processes_change_nothing(corpus, tmp_path):
    train(config_of(corpus, tmp_path / "none", steps=3), World())
    train(config_of(corpus, tmp_path / "one", steps=3, workers=1), World())
    assert metrics_of(tmp_path / "none") == metrics_of(tmp_path / "one")


def test_a_checkpoint_of_another_manifest_or_model_asks_for_another_out(corpus, tmp_path):
    train(config_of(corpus, tmp_path / "out", steps=3), World())
    with pytest.raises(
        BadInput,
        match=r"step-00000003\.pt: a model of .*'width': 32}, this run's is .*'width': 64}; give another",
    ):
        train(config_of(corpus, tmp_path / "out", width=64), World())
    other = build(tmp_path / "other", lengths=(9, 9))
    with pytest.raises(BadInput, match="cannot resume the data position: the checkpoint has manifest"):
        train(config_of(other, tmp_path / "out"), World())


def test_a_manifest_without_cameras_is_refused(tmp_path):
    blind = build(tmp_path, lengths=(9,), cameras=())
    with pytest.raises(BadInput, match="this recipe needs cameras, state and action; one is missing"):
        train(config_of(blind, tmp_path), World())


def test_a_loss_that_is_no_number_stops_the_run_with_its_step(corpus, tmp_path):
    with pytest.raises(DynaError, match=r"step \d+: the losses are \[.*nan.*\]; lower learning_rate"):
        train(config_of(corpus, tmp_path, learning_rate=1e20, steps=20), World())


def test_padding_does_not_count_in_the_losses(corpus):
    manifest = Manifest.open(corpus.manifest)
    model = WorldActionModel(manifest.info, num_patches=1, horizon=2, width=32).eval()
    batch = {
        "frames": torch.randint(0, 255, (2, 1, 2, 32, 32, 3), dtype=torch.uint8),
        "frames_is_pad": torch.tensor([[False, False], [False, True]]),
        "state": torch.zeros(2, 1, 2),
        "action": torch.zeros(2, 2, 3),
        "action_is_pad": torch.tensor([[False, True], [True, True]]),
        "task": ["a", "b"],
    }
    expected = model(batch)
    batch["action"][0, 1] = batch["action"][1] = 1e6
    batch["frames"][1, :, 1] = 0
    assert torch.equal(model(batch), expected)
    batch["action_is_pad"][:] = True
    assert model(batch)[0] == 0


def test_the_target_features_are_the_same_in_every_process_and_never_train(corpus):
    manifest = Manifest.open(corpus.manifest)
    torch.manual_seed(1)
    one = WorldActionModel(manifest.info, num_patches=1, horizon=2, width=32)
    torch.manual_seed(2)
    other = WorldActionModel(manifest.info, num_patches=1, horizon=2, width=32)
    assert torch.equal(one.project.weight, other.project.weight)
    assert not one.project.weight.requires_grad
    assert abs(one.project.weight.std() * (3 * 32 * 32) ** 0.5 - 1) < 0.05


def test_a_key_nobody_knows_names_the_nearest(tmp_path):
    (tmp_path / "c.toml").write_text('manifest = "m"\nout = "o"\nbatchsize = 3\n')
    with pytest.raises(ConfigError, match="unknown key 'batchsize'; did you mean 'batch_size'"):
        load_config(RecipeConfig, tmp_path / "c.toml")
