"""Public bug reports about rollouts, syncs and stale samples: each has a test by its id."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.data

AREAS = {"rollout", "sync", "async"}
TESTS = Path(__file__).parent.parent.parent


def test_every_case_of_these_areas_is_named_in_a_test(test_data) -> None:
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text(encoding="utf-8").splitlines()
    reported = [case["id"] for case in map(json.loads, lines) if case["area"] in AREAS]
    assert reported
    sources = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    assert [name for name in reported if f'"{name}"' not in sources] == []
