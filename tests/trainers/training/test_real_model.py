"""Three steps of a real instruct model on real GSM8K problems; minutes of work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(1800)
def test_smollm2_trains_three_steps_on_gsm8k(test_data, tmp_path):
    model = tmp_path / "SmolLM2-135M"
    make = [sys.executable, str(ROOT / "scripts" / "make_smollm2.py"), str(model)]
    subprocess.run(make, check=True, capture_output=True, timeout=600)
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "rlgym_llm_trainers.cli", "--env", "math-gsm8k", "--model", str(model)),
            *("--data.train", str(test_data / "data" / "gsm8k" / "train.jsonl")),
            *("--data.val", str(test_data / "data" / "gsm8k" / "test.jsonl")),
            *("--data.train_batch_size", "2", "--rollout.n", "4", "--data.val_max_samples", "4"),
            *("--data.max_response_length", "64", "--trainer.total_training_steps", "3"),
            # The characters written differ between siblings, so that every group has a gradient.
            *("--reward", "math=1.0", "--reward", "length=0.01"),
            *("--rewards.components.length.options.unit", "chars"),
            *("--output", str(tmp_path / "out")),
        ],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "starter" not in done.stdout
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    for row in rows[1:]:
        assert row["training/rollout_ratio_diff_max"] < 1e-3
        assert row["actor/grad_norm"] > 0
    assert "val-core/openai/gsm8k/acc/mean@1" in rows[-1]
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()
