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
from rlgym_llm import hookimpl
from rlgym_llm.specs import Kind, PolicyLossSpec
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss

calls = []

def fails(inputs, *, reduce):
    import torch.distributed

    calls.append(inputs)
    if len(calls) > 1 and torch.distributed.get_rank() == 1:  # the first call is a trial
        raise ZeroDivisionError("of the second rank")
    return ppo_clip_loss(inputs, reduce=reduce)

@hookimpl
def rlgym_register(kind):
    here = f"{__name__}:fails"
    return [PolicyLossSpec(name="fails", entry_point=here)] if kind is Kind.POLICY_LOSS else []
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


def test_what_fails_on_another_rank_is_said_once(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    done = run(tmp_path, "--plugin", "mine.py", "--actor.policy_loss", "fails", "--output", "run")
    assert done.returncode == 1
    assert done.stderr.count("ZeroDivisionError: of the second rank") == 1
    assert done.stderr.count("rlgym-train: another rank has ended; what it said") == 1


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
