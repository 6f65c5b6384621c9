from __future__ import annotations

import pytest

EXPLAINED = "critic/vf_explained_var"


@pytest.mark.parametrize(
    ("measured", "seen"),
    [
        ([0.9, 0.9, 0.9, 0.9], None),
        ([0.0, 0.0, 0.0, 0.0], None),
        ([-0.2] * 8, "explained variance -0.2"),
        ([-0.2] * 7, None),  # the first window is a critic that begins
        ([-0.05] * 8, None),
        ([-0.2] * 5 + [0.1] * 3, None),
        ([None, None, None, None], "undefined"),
        ([None, None, None, 0.5], None),
    ],
)
def test_what_a_critic_explains(judge, steps, measured, seen):
    finding = judge("explained_variance", steps({EXPLAINED: measured}))
    assert (finding is None) is (seen is None)
    if finding:
        assert seen in finding.seen


def test_a_run_without_a_critic_says_nothing_of_one(judge, steps):
    rows = steps({"actor/pg_loss": 0.0}, num=8)
    for rule in ("explained_variance", "value_loss", "value_drift"):
        assert judge(rule, rows) is None


@pytest.mark.parametrize(("now", "fires"), [(0.39, False), (0.41, True), (0.1, False)])
def test_a_value_loss_that_rises_again(judge, steps, now, fires):
    losses = [1.0] * 4 + [0.2] * 4 + [0.3] * 4 + [now] * 4  # it was .2 once
    rows = steps({"critic/vf_loss": losses, EXPLAINED: -0.01})
    assert (judge("value_loss", rows) is not None) is fires


def test_a_value_loss_that_rises_with_the_first_successes_is_no_finding(judge, steps):
    losses = [1e-6] * 4 + [0.02] * 4
    assert judge("value_loss", steps({"critic/vf_loss": losses, EXPLAINED: 0.3})) is None
    # Returns that were all equal have no explained variance, and their loss is none to go by.
    explained = [None] * 4 + [-0.5] * 4
    assert judge("value_loss", steps({"critic/vf_loss": losses, EXPLAINED: explained})) is None
    assert judge("value_loss", steps({"critic/vf_loss": losses, EXPLAINED: -0.5})) is not None


@pytest.mark.parametrize(
    ("value", "fires"), [(-0.09, False), (1.09, False), (1.11, True), (-0.11, True)]
)
def test_values_outside_of_the_returns(judge, steps, value, fires):
    rows = steps({"critic/values/mean": value, "critic/returns/min": 0, "critic/returns/max": 1})
    assert (judge("value_drift", rows) is not None) is fires


def test_returns_that_are_all_equal_have_no_scale_to_drift_from(judge, steps):
    row = {"critic/values/mean": 0.99, "critic/returns/min": 1.0, "critic/returns/max": 1.0}
    assert judge("value_drift", steps(row)) is None
