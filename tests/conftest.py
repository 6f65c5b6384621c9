"""Fixtures that every test may use: the labelled cases, loaded by id."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes is no property of the code: benchmarks measure time, tests do not.
settings.register_profile("rlgym", deadline=None)
settings.load_profile("rlgym")

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
