"""The shims under the real trainers, each in an environment of its own, made on the first run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = Path(os.environ.get("RLGYM_LLM_PEERS", ROOT / ".venv-peers"))
# How many claims each benchmark checks: one that is left out would pass unseen.
CHECKS = {"trl": 30, "verl": 8, "openrlhf": 4}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first run installs the trainer
@pytest.mark.parametrize("trainer", CHECKS)
def test_the_real_trainer_scores_as_the_composer_does(trainer):
    script = ROOT / "benchmarks" / f"{trainer}_shim.py"
    command = [sys.executable, str(script), "--peers", str(PEERS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    held = [line for line in done.stdout.splitlines() if line.startswith("ok  ")]
    assert len(held) == CHECKS[trainer], done.stdout
