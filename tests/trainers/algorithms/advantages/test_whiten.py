import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.advantages.whiten import whiten

NAN = float("nan")


def test_by_hand():
    # 1, 2, 3: mean 2, unbiased variance 1.
    found = whiten(
        np.array([[1.0, NAN, 2.0], [3.0, 9.0, 9.0]]), np.array([[1, 0, 1], [1, 0, 0]]) > 0
    )
    assert found == pytest.approx(np.array([[-1.0, 0, 0], [1, 0, 0]]), abs=1e-7)


def test_one_value_and_none_stay_as_they_are():
    assert whiten(np.array([[0.7, 5.0]]), np.array([[True, False]])).tolist() == [[0.7, 0.0]]
    assert whiten(np.array([[0.7, 5.0]]), np.array([[False, False]])).tolist() == [[0.0, 0.0]]


@given(st.floats(-1e6, 1e6), st.integers(2, 30))
def test_equal_values_are_exactly_zero(value, size):
    assert not whiten(np.full((1, size), value), np.ones((1, size), dtype=bool)).any()


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_never_nan_and_never_beyond_the_bound(values):
    found = whiten(np.array([values]), np.ones((1, len(values)), dtype=bool))
    assert np.isfinite(found).all()
    # |x - mean| <= (n - 1) / sqrt(n) of the unbiased std.
    size = len(values)
    assert np.abs(found).max() <= (size - 1) / math.sqrt(size) * (1 + 1e-6)
