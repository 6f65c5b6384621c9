"""Training on GPUs, with vLLM in this process and behind its own transports: run with -m gpu."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
import torch

WAIT_S = 900
SMALL = (
    *("--env", "math-gsm8k", "--trainer.device", "cuda", "--rollout.name", "vllm"),
    *("--trainer.total_training_steps", "2", "--data.train_batch_size", "4", "--rollout.n", "4"),
    *("--data.val_max_samples", "8", "--rollout.max_model_len", "256"),
    *("--rollout.enforce_eager", "true"),
)


@pytest.fixture(autouse=True)
def gpus(request):
    """Skips a test that is marked ``gpu(number)`` where there are fewer, or no vLLM."""
    needed = request.node.get_closest_marker("gpu").args[0]
    if torch.cuda.device_count() < needed:
        pytest.skip(f"needs {needed} GPUs with CUDA, there are {torch.cuda.device_count()}")
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")


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
    steps = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    steps = {row["step"]: row for row in steps}
    assert list(steps) == [0, 1, 2]
    for step in (1, 2):
        assert steps[step]["training/off_policy/trajectory_staleness/max"] == 0
        assert steps[step]["training/rollout_ratio_diff_max"] < 0.1
        assert steps[step]["actor/grad_norm"] > 0
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
