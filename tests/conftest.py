"""Fixtures that every test may use: the labelled cases, loaded by id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes is no property of the code: benchmarks measure time, tests do not.
settings.register_profile("rlgym", deadline=None)
settings.load_profile("rlgym")

ROOT = Path(__file__).parents[1]
DATA_VARIABLE = "RLGYM_LLM_TEST_DATA"


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of the labelled cases; the test is skipped, by name, where it is not given."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        pytest.skip(f"{DATA_VARIABLE} is not set")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def bug_report(test_data: Path) -> Callable[[str], dict[str, Any]]:
    """Looks up one public bug report, ``{input, right, ...}``, by its id."""
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text().splitlines()
    cases = {case["id"]: case for case in map(json.loads, lines)}
    return cases.__getitem__


@pytest.fixture(scope="session")
def claims_held() -> Callable[[str], list[str]]:
    """Runs a benchmark on a real package, in an environment made on the first run: what held."""
    peers = os.environ.get("RLGYM_LLM_PEERS", str(ROOT / ".venv-peers"))

    def run(script: str) -> list[str]:
        command = [sys.executable, str(ROOT / "benchmarks" / script), "--peers", peers]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("ok  ")]

    return run
