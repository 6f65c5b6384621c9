"""``torchrun ... rlgym-train`` as a person runs it: two processes on the starter problems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.models.policy import load_policy
from rlgym_llm_trainers.models.starter import starter_model_path
from rlgym_llm_trainers.training.preparation import find_model
from rlgym_llm_trainers.training.run_learner import check_learner
from safetensors.torch import load_file

from rlgym_llm.config import load_config
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins

SMALL = (
    *("--data.train_batch_size", "4", "--rollout.n", "4", "--data.val_max_samples", "8"),
    *("--trainer.num_threads", "1", "--actor.ppo_mini_batch_size", "2"),
)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

PLUGIN = """
import os
import sys
from pathlib import Path

from rlgym_llm import hookimpl
from rlgym_llm.specs import Kind, PolicyLossSpec
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss

def is_late_on_rank_1():
    import torch.distributed

    return torch.distributed.get_rank() == 1 and Path("run/checkpoints/step_1").is_dir()

def fails(inputs, *, reduce):
    if is_late_on_rank_1():
        raise ZeroDivisionError("of the second rank")
    return ppo_clip_loss(inputs, reduce=reduce)

def dies(inputs, *, reduce):
    if is_late_on_rank_1():
        print("the second rank dies", file=sys.stderr, flush=True)
        os._exit(3)
    return ppo_clip_loss(inputs, reduce=reduce)

@hookimpl
def rlgym_register(kind):
    if kind is not Kind.POLICY_LOSS:
        return []
    return [PolicyLossSpec(name=n, entry_point=f"{__name__}:{n}") for n in ("fails", "dies")]
"""


def load(path):
    return load_policy(path, device=torch.device("cpu"))


def run(folder, *flags, timeout=150):
    return subprocess.run(
        [*TORCHRUN, "-m", "rlgym_llm_trainers.cli", *SMALL, *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two steps on two ranks, and the same two on one."""
    folder = tmp_path_factory.mktemp("ranks")
    flags = ("--trainer.total_training_steps", "2", "--actor.use_kl_loss", "true")
    done = run(folder, *flags, "--output", "two")
    assert done.returncode == 0, done.stderr
    assert main([*SMALL, *flags, "--output", str(folder / "one")]) == 0
    return folder, done


def test_two_ranks_learn_what_one_learns(finished):
    folder, _ = finished
    ours, right = (
        [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("two", "one")
    )
    assert [row["step"] for row in ours] == [row["step"] for row in right] == [0, 1, 2]
    for key in ("critic/rewards/mean", "response_length/mean"):
        assert ours[1][key] == right[1][key]
    for key in ("actor/loss", "actor/grad_norm", "actor/kl_loss"):
        assert ours[1][key] == pytest.approx(right[1][key], rel=1e-4)
    assert ours[2]["training/rollout_ratio_diff_max"] < 1e-4  # the generator has the new weights
    found, expected, before = (
        torch.cat([p.flatten() for p in load(path).model.parameters()])
        for path in (folder / "two" / "model", folder / "one" / "model", starter_model_path())
    )
    assert (found - expected).abs().max() / expected.abs().max() < 1e-5
    assert (found - before).abs().max() / before.abs().max() > 1e-5


def test_the_first_rank_alone_talks(finished):
    folder, done = finished
    assert done.stdout.count("step 1/2") == 1
    assert done.stdout.count("model    ") == 1
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]


def run_with_plugin(folder, loss):
    (folder / "mine.py").write_text(PLUGIN)
    flags = ("--trainer.save_freq", "1", "--trainer.val_before_train", "false", "--output", "run")
    return run(folder, "--plugin", "mine.py", "--actor.policy_loss", loss, *flags)


def test_a_rank_that_dies_ends_the_run(tmp_path):
    done = run_with_plugin(tmp_path, "dies")
    assert done.returncode == 1
    assert done.stderr.count("the second rank dies") == 1
    assert done.stderr.count("rlgym-train: another rank has ended; what it said") == 1


def test_a_loss_that_fails_on_one_rank_is_said_once_and_what_was_learned_is_saved(tmp_path):
    done = run_with_plugin(tmp_path, "fails")
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("rlgym-train")]
    assert said.startswith("rlgym-train: rank 1: policy loss 'fails'")
    assert "ZeroDivisionError: of the second rank; the model after 1 steps is in" in said
    assert done.stderr.count("Traceback") == 1  # torchrun's own
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step_*")) == [
        "step_1"
    ]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_ranks_with_other_words_are_told_apart_before_they_learn(tmp_path):
    script = f"""
import os, sys
from rlgym_llm_trainers.cli import main
rank = os.environ["RANK"]
mine = ["--actor.ppo_epochs", "2"] if rank == "1" else []
sys.exit(main([*{SMALL!r}, "--output", "run_" + rank, *mine]))  # each may have its own folder
"""
    (tmp_path / "start.py").write_text(script)
    done = subprocess.run(
        [*TORCHRUN, "start.py"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("rlgym-train")]
    assert said == (
        "rlgym-train: rank 1: --actor.ppo_epochs 2, not 1 as on rank 0: start all ranks with the "
        "same settings"
    )
    assert done.stderr.count("Traceback") == 1  # torchrun's own


def test_weights_that_are_not_finite_are_saved_nowhere(tmp_path, capsys):
    """In step 1 the critic alone learns."""
    flags = (
        *("--algorithm.adv_estimator", "gae", "--trainer.critic_warmup", "1"),
        *("--actor.optim.lr", "100", "--actor.optim.weight_decay", "1e30"),
        *("--trainer.save_freq", "1", "--trainer.max_actor_ckpt_to_keep", "1"),
        *("--trainer.total_training_steps", "3", "--trainer.val_before_train", "false"),
    )
    assert main([*SMALL, *flags, "--output", str(tmp_path)]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("rlgym-train: actor: the weights are not finite after update 1 (norm ")
    assert said.endswith("; the model is not saved")
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("step_*")) == ["step_1"]
    assert not (tmp_path / "model").exists()
    critic = load_file(tmp_path / "critic" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in critic.values())
    # The checkpoint is one to go on from, with other settings.
    kept = str(tmp_path / "checkpoints" / "step_1")
    flags = (
        *("--algorithm.adv_estimator", "gae", "--trainer.resume_mode", "resume_path"),
        *("--trainer.resume_from_path", kept, "--trainer.total_training_steps", "2"),
    )
    assert main([*SMALL, *flags, "--output", str(tmp_path / "again")]) == 0
    found = load_file(tmp_path / "again" / "model" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_what_is_saved_has_the_adapters_merged(tmp_path):
    pytest.importorskip("peft")
    steps = ("--trainer.total_training_steps", "2", "--trainer.val_before_train", "false")
    flags = (
        "--model.lora_rank",
        "4",
        "--actor.optim.lr",
        "1e-3",
        "--output",
        str(tmp_path / "run"),
    )
    assert main([*SMALL, *steps, *flags]) == 0
    found = load_file(tmp_path / "run" / "model" / "model.safetensors")
    before = load_file(starter_model_path() / "model.safetensors")
    assert found.keys() == before.keys()
    changed = {name for name in found if not torch.equal(found[name], before[name].float())}
    assert changed == {name for name in found if "_proj." in name}


def test_the_arithmetic_is_that_of_all_ranks(monkeypatch, capsys):
    values = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "here"}
    for name, value in (values | {"RANK": "0", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    assert main([*SMALL, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "micro-batch  4 sequences on each of 2 ranks: 8 = 4 x 2 x 1 accumulation step" in said
    monkeypatch.setenv("RANK", "1")
    assert main([*SMALL, "--dry-run"]) == 0
    assert main(["--actor.no_such_key", "1"]) == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("flags", "world_size", "message"),
    [
        (["--actor.fsdp_config.param_offload=true"], 2, "param_offload true: is for .* on GPUs"),
        (["--actor.fsdp_config.optimizer_offload=true"], 1, "optimizer_offload true: .*torchrun"),
    ],
)
def test_what_ranks_cannot_do_is_refused(flags, world_size, message):
    config = load_config(flags)
    source = find_model(config, Plugins.discover())
    with pytest.raises(ConfigError, match=message):
        check_learner(config, source, Ranks(world_size=world_size))


def test_vllm_beside_a_learner_of_several_ranks_is_refused():
    config = load_config([])
    source = find_model(config, Plugins.discover())
    vllm = replace(source, generator=replace(source.generator, name="vllm"))
    check_learner(config, vllm, ALONE)
    with pytest.raises(ConfigError, match=r"take --rollout\.num_workers 1"):
        check_learner(config, vllm, Ranks(world_size=2))
