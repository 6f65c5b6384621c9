"""The command line with vLLM: in this process, and as a Ray actor."""

import json
import subprocess
import sys

import pytest

WAIT_S = 280
SMALL = (
    *("--env", "math-gsm8k", "--rollout.name", "vllm", "--trainer.num_threads", "1"),
    *("--trainer.total_training_steps", "2", "--data.train_batch_size", "4", "--rollout.n", "4"),
    *("--data.val_max_samples", "8", "--rollout.max_model_len", "256"),
)


def train(output, *flags: str) -> tuple[subprocess.CompletedProcess, list[dict]]:
    program = "import sys; from rlgym_llm_trainers.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *SMALL, "--output", str(output), *flags],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    metrics = output / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return done, [json.loads(line) for line in lines]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_two_steps_learn_from_what_vllm_sampled(tmp_path, num_workers: int) -> None:
    done, steps = train(tmp_path / "run", "--rollout.num_workers", str(num_workers))
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in steps] == [0, 1, 2]
    for row in steps[1:]:
        assert row["training/rollout_ratio_diff_max"] < 1e-3
        assert row["training/off_policy/trajectory_staleness/max"] == 0
        assert row["timing_s/update_weights"] > 0
        assert row["actor/grad_norm"] > 0
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    for noise in ("Traceback", "Triton", "NUMA"):
        assert noise not in done.stderr


def test_generation_runs_ahead_and_is_corrected(tmp_path) -> None:
    done, steps = train(
        tmp_path / "run",
        *("--rollout.num_workers", "1", "--rollout.max_staleness", "1"),
        *("--trainer.total_training_steps", "3"),
    )
    assert done.returncode == 0, done.stderr
    for row in steps[1:]:
        assert 0 <= row["training/off_policy/trajectory_staleness/max"] <= 1
        assert row["rollout_corr/rollout_is_mean"] > 0
        assert 0 <= row["fully_async/trainer/idle_ratio"] <= 1
    assert steps[-1]["fully_async/current_param_version"] == 2


def test_what_vllm_refuses_is_one_line(tmp_path) -> None:
    done, steps = train(tmp_path / "run", "--rollout.tensor_model_parallel_size", "2")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--rollout.tensor_model_parallel_size 2" in done.stderr
    assert steps == []
