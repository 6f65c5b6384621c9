from __future__ import annotations

import pytest
from rlgym_llm_trainers.training.health.history import History


def test_a_window_needs_its_steps_and_the_newest_of_them():
    rows = [{"a": 1.0}, {"a": None}, {}, {"a": 3.0}]
    assert History(rows, 2).mean("a") == 2.0  # steps without it stand between
    assert History(rows, 3).mean("a") is None
    assert History([*rows, {"b": 1.0}], 2).mean("a") is None
    assert History([*rows, {"a": None}], 2).mean("a") is None


def test_windows_are_counted_back_from_the_newest():
    rows = [{"a": float(i), "b": 10.0 * i} for i in range(5)]
    assert History(rows, 2).windows("a", "b") == [
        [(3.0, 30.0), (4.0, 40.0)],
        [(1.0, 10.0), (2.0, 20.0)],
    ]
    assert History(rows, 2).averages("a", "b") == {"a": 3.5, "b": 35.0}
    assert History(rows, 2).averages("a", "c") is None


@pytest.mark.parametrize(
    ("old", "kept"), [({"rewards/x/weight": 1.0}, 3), ({"rewards/x/weight": 0.5}, 1), ({}, 1)]
)
def test_a_weight_that_moves_begins_a_new_history(old, kept):
    now = {"rewards/x/weight": 1.0, "rewards/x/mean": 0.2}
    assert len(History([old, old, now], 2).of_these_rewards().rows) == kept


def test_under_a_curriculum_no_earlier_step_compares():
    row = {"curriculum/share/level 1": 0.5}
    assert History([row, row, row], 2).of_these_rewards().rows == [row]
