"""The adapters on the real packages, each in an environment of its own, made on the first run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = Path(os.environ.get("RLGYM_LLM_PEERS", ROOT / ".venv-peers"))
# How many claims each benchmark checks: one that is left out would pass unseen.
CHECKS = {"reasoning_gym": 535, "gem": 34, "verifiers": 31}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first run installs the package
@pytest.mark.parametrize("package", CHECKS)
def test_the_real_package_plays_here_as_it_says(package):
    script = ROOT / "benchmarks" / f"{package}_adapter.py"
    command = [sys.executable, str(script), "--peers", str(PEERS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    held = [line for line in done.stdout.splitlines() if line.startswith("ok  ")]
    assert len(held) == CHECKS[package], done.stdout
