import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.prm import IGNORED, prm_labels, reduce_steps
from rlgym_llm_rewards.prm.labels import check_labels
from rlgym_llm_rewards.prm.reduce import reduced_range, transform_steps

from rlgym_llm.errors import DataError

REDUCES = ("last", "mean", "min", "prod", "sum")
TRANSFORMS = ("none", "clip", "delta", "clip_delta")
SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("reduce", "value", "shares"),
    [  # of 0.75, 0.25, 0.5
        ("last", 0.5, [0, 0, 0.5]),
        ("mean", 0.5, [0.25, 0.25 / 3, 0.5 / 3]),
        ("min", 0.25, [0, 0.25, 0]),
        ("prod", 0.09375, [0, 0, 0.09375]),  # 0.75 * 0.25 * 0.5
        ("sum", 1.5, [0.75, 0.25, 0.5]),
    ],
)
def test_reduce(reduce, value, shares):
    assert reduce_steps([0.75, 0.25, 0.5], reduce) == (pytest.approx(value), pytest.approx(shares))


@pytest.mark.parametrize(
    ("transform", "eta", "values"),
    [
        ("none", 0.5, [0.75, 0.25, 0.5]),
        ("clip", 0.5, [0, -0.25, 0]),  # min(s - 0.5, 0)
        ("delta", 0.5, [0.75, -0.5, 0.25]),  # 0.75 - 0, 0.25 - 0.75, 0.5 - 0.25
        ("clip_delta", 0.5, [0, -0.25, 0.25]),
    ],
)
def test_transform(transform, eta, values):
    assert transform_steps([0.75, 0.25, 0.5], transform, eta=eta) == values


def test_the_weakest_of_equals_is_the_first():
    assert reduce_steps([0.5, 0.5], "min") == (0.5, [0.5, 0.0])


def test_no_steps_have_no_value():
    with pytest.raises(ValueError, match="no step"):
        reduce_steps([], "sum")


@given(SCORES, st.sampled_from(REDUCES), st.sampled_from(TRANSFORMS), st.floats(0, 1))
def test_shares_add_up_and_the_value_keeps_its_range(scores, reduce, transform, eta):
    value, shares = reduce_steps(transform_steps(scores, transform, eta=eta), reduce)
    assert math.fsum(shares) == value
    low, high = reduced_range(0.0, 1.0, reduce, transform, eta)
    assert low - 1e-12 <= value <= high + 1e-12


@given(SCORES)
def test_progress_adds_up_to_the_last_score(scores):
    value, _ = reduce_steps(transform_steps(scores, "delta"), "sum")
    assert value == pytest.approx(scores[-1])


@given(SCORES, st.floats(0, 1))
def test_clipped_steps_never_earn(scores, eta):
    assert max(transform_steps(scores, "clip", eta=eta)) <= 0


def test_ignored_labels_stay_ignored(bug_report):
    report = bug_report("prm-label_cast_to_bool")
    given, right = report["input"], report["right"]
    labels = prm_labels([False, True], [1, 4], len(given["labels"]))
    assert labels.dtype == np.int64
    assert labels.tolist() == given["labels"] == right["values"]["labels"]
    assert (check_labels(labels) != IGNORED).sum() == right["values"]["supervised"]
    cast = labels.astype(given["column_type"])
    assert cast.astype(int).tolist() == right["known_wrong"]["labels"]  # what the bug trained on
    with pytest.raises(DataError, match=r"bool, where -100 \(ignored\) reads as True"):
        check_labels(cast)


def test_step_labels_of_any_integer_kind():
    assert prm_labels([1, 0], [0, 2], 3).tolist() == [1, IGNORED, 0]
    assert prm_labels(np.array([True, False]), [0, 2], 3).tolist() == [1, IGNORED, 0]
    assert prm_labels([], [], 2).tolist() == [IGNORED, IGNORED]


def test_labels_that_do_not_fit():
    with pytest.raises(DataError, match="2 step labels for 1 steps"):
        prm_labels([1, 0], [0], 3)
    with pytest.raises(DataError, match="step label -100"):
        prm_labels([-100], [0], 3)
    with pytest.raises(DataError, match="ends on token 3, after -1, of 3 tokens"):
        prm_labels([1], [3], 3)
    with pytest.raises(DataError, match="ends on token 1, after 1"):
        prm_labels([1, 1], [1, 1], 3)
    with pytest.raises(DataError, match="float64"):
        check_labels([0.5])
