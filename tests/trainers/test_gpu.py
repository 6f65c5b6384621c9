"""Training on GPUs, by one rank with vLLM and by several with FSDP2: run with -m gpu."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

WAIT_S = 900
SMALL = (
    *("--env", "math-gsm8k", "--trainer.device", "cuda", "--rollout.name", "vllm"),
    *("--trainer.total_training_steps", "2", "--data.train_batch_size", "4", "--rollout.n", "4"),
    *("--data.val_max_samples", "8", "--rollout.max_model_len", "256"),
    *("--rollout.enforce_eager", "true"),
)


@pytest.fixture(autouse=True)
def gpus(request):
    """Skips a test that is marked ``gpu(number)`` where there are fewer."""
    needed = request.node.get_closest_marker("gpu").args[0]
    if torch.cuda.device_count() < needed:
        pytest.skip(f"needs {needed} GPUs with CUDA, there are {torch.cuda.device_count()}")


def read_steps(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    steps = {row["step"]: row for row in rows}
    assert list(steps) == [0, 1, 2]
    return steps


def by(transport: str, num_workers: int, *flags: str):
    sync = ("--rollout.weight_sync.transport", transport)
    return (*sync, "--rollout.num_workers", str(num_workers), *flags)


@pytest.mark.timeout(WAIT_S + 60)
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(by("auto", 0), marks=pytest.mark.gpu(1), id="memory"),
        pytest.param(by("auto", 1), marks=pytest.mark.gpu(1), id="shared_memory"),
        pytest.param(
            by("auto", 0, "--rollout.top_p", "0.5", "--rollout.temperature", "0.7"),
            marks=pytest.mark.gpu(1),
            id="kept sets",
        ),
        pytest.param(
            by("ipc", 1, "--rollout.workers.num_gpus", "0.5"),
            marks=pytest.mark.gpu(1),
            id="ipc",
        ),
        pytest.param(by("nccl", 1), marks=pytest.mark.gpu(2), id="nccl"),
        pytest.param(by("nccl", 2), marks=pytest.mark.gpu(3), id="nccl of three"),
    ],
)
def test_two_steps_learn_from_what_vllm_sampled(tmp_path, flags) -> None:
    """The canary, which is on, compares generator and learner after each of the three syncs."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    program = "import sys; from rlgym_llm_trainers.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *SMALL, *flags, "--output", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    steps = read_steps(tmp_path / "run")
    for step in (1, 2):
        assert steps[step]["training/off_policy/trajectory_staleness/max"] == 0
        assert steps[step]["training/rollout_ratio_diff_max"] < 0.1
        assert steps[step]["actor/grad_norm"] > 0
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


@pytest.mark.timeout(WAIT_S + 60)
@pytest.mark.parametrize(
    ("num_ranks", "flags"),
    [
        pytest.param(1, (), marks=pytest.mark.gpu(1), id="mixed precision"),
        pytest.param(
            1,
            ("--actor.fsdp_config.optimizer_offload", "true"),
            marks=pytest.mark.gpu(1),
            id="optimizer offload",
        ),
        pytest.param(2, (), marks=pytest.mark.gpu(2), id="two"),
        pytest.param(
            2,
            ("--actor.fsdp_config.param_offload", "true"),
            marks=pytest.mark.gpu(2),
            id="parameter offload",
        ),
        pytest.param(
            2,
            (
                *("--model.lora_rank", "4", "--model.enable_gradient_checkpointing", "true"),
                *("--algorithm.adv_estimator", "gae"),
            ),
            marks=pytest.mark.gpu(2),
            id="adapters and a critic",
        ),
    ],
)
def test_two_steps_of_ranks_in_mixed_precision(tmp_path, num_ranks, flags) -> None:
    """Rank 0 samples from a whole copy in float32, the learner computes in bfloat16."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(num_ranks), "-m", "rlgym_llm_trainers.cli"),
            *("--env", "math-gsm8k", "--trainer.device", "cuda", "--rollout.name", "hf"),
            *("--trainer.total_training_steps", "2", "--data.train_batch_size", "4"),
            *("--rollout.n", "4", "--data.val_max_samples", "8", "--actor.use_kl_loss", "true"),
            *(*flags, "--output", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    steps = read_steps(tmp_path / "run")
    for step in (1, 2):
        assert steps[step]["training/rollout_probs_diff_mean"] < 0.05
        assert steps[step]["actor/grad_norm"] > 0
        assert steps[step]["actor/skipped_ratio"] == 0
    weights = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
