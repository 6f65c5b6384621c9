import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.pf_ppo import filtration_weights, resample

METHODS = ["pow", "max_min", "max_random"]


def test_weights_by_hand():
    # |score|^2: 1, 4, 0 of 5.
    assert filtration_weights([1, -2, 0]) == pytest.approx([0.2, 0.8, 0], abs=1e-7)
    assert filtration_weights([1, -2, 0], power=1.0) == pytest.approx([1 / 3, 2 / 3, 0], abs=1e-7)
    assert filtration_weights([1, 3, 2, 1], "max_min") == pytest.approx(
        [1 / 3, 1 / 3, 0, 1 / 3], abs=1e-7
    )
    # .1, .4, .1 of .6.
    assert filtration_weights([1, 3, 2], "max_random") == pytest.approx(
        [1 / 6, 4 / 6, 1 / 6], abs=1e-7
    )


def test_a_power_of_a_large_score_stays_finite():
    assert filtration_weights([1e200, 1.0], power=4.0) == pytest.approx([1.0, 0.0], abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_weights_are_chances_and_draw_as_many(method, scores):
    chances = filtration_weights(scores, method)
    assert (chances >= 0).all()
    assert chances.sum() == pytest.approx(1)
    drawn = resample(scores, method, seed=3)
    assert len(drawn) == len(scores)
    assert set(drawn) <= set(range(len(scores)))
    assert drawn == resample(scores, method, seed=3)


@pytest.mark.parametrize("method", METHODS)
def test_equal_scores_are_drawn_evenly(method):
    for value in (0.0, 0.3):
        assert filtration_weights([value] * 4, method) == pytest.approx([0.25] * 4)


def test_what_is_drawn_follows_the_weights():
    # 100,000 draws at .2 and .8: a standard error of .0013.
    scores = [1.0, -2.0] * 50_000
    share = np.mean([place % 2 for place in resample(scores, seed=0)])
    assert share == pytest.approx(0.8, abs=0.007)


def test_the_seed_decides():
    scores = [float(i) for i in range(20)]
    assert resample(scores, seed=1) != resample(scores, seed=2)


@pytest.mark.parametrize(
    ("scores", "method", "says"),
    [
        ([], "pow", "needs scores"),
        ([1.0, float("nan")], "pow", "all of them finite"),
        ([1.0], "max", "method must be pow, max_min or max_random, got 'max'"),
    ],
)
def test_what_cannot_be_weighed_is_refused(scores, method, says):
    with pytest.raises(ValueError, match=says):
        filtration_weights(scores, method)
