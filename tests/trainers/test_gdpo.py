import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.advantages import grpo_advantages
from rlgym_llm_trainers.gdpo import gdpo_advantages

from rlgym_llm.composition.card import compose
from rlgym_llm.scores import Score, ScoreStatus


def cards(weights, **values):
    rows = zip(*values.values(), strict=True)
    return [
        compose(str(index), {n: score(n, v) for n, v in zip(values, row, strict=True)}, weights)
        for index, row in enumerate(rows)
    ]


def score(name, value):
    if value is None:
        return Score(name=name, value=None, status=ScoreStatus.NOT_APPLICABLE)
    return Score(name=name, value=value)


def gdpo(found, groups, eps=1e-6):
    estimate = functools.partial(grpo_advantages, group_ids=groups, eps=eps)
    return gdpo_advantages(found, estimate([card.reward for card in found]), estimate, eps=eps)


def test_components_pull_by_their_weights_and_not_by_their_spread():
    found = cards({"a": 1.0, "b": 1.0}, a=[0.0, 0.0, 1.0, 1.0], b=[0.0, 100.0, 0.0, 100.0])
    # Each alone is -.866, -.866, .866, .866 in its order; their sums -1.732, 0, 0, 1.732 have
    # (biased) std 1.2247, so 1.4142.
    expected = [-(2**0.5), 0.0, 0.0, 2**0.5]
    assert gdpo(found, list("gggg")).advantages == pytest.approx(expected, abs=1e-5)


def test_weights_count():
    found = cards({"a": 2.0, "b": 1.0}, a=[0.0, 0.0, 1.0, 1.0], b=[0.0, 1.0, 0.0, 1.0])
    # 2 * -.866 - .866, ...: -2.598, -.866, .866, 2.598 over their std 1.9365.
    expected = [-1.3416, -0.4472, 0.4472, 1.3416]
    assert gdpo(found, list("gggg")).advantages == pytest.approx(expected, abs=1e-4)


def test_what_does_not_apply_adds_nothing_and_what_is_unscored_stays_out():
    found = cards(
        {"a": 1.0, "b": 1.0}, a=[0.0, 1.0, 0.0, 1.0, None], b=[None, None, 0.5, 0.5, None]
    )
    result = gdpo(found, list("ggggg"))
    assert result.is_valid.tolist() == [True, True, True, True, False]
    # b's two siblings are equal: 0. a: -.866, .866, ... and std .866.
    assert result.advantages == pytest.approx([-1, 1, -1, 1, 0], abs=1e-5)


def test_a_metric_changes_nothing():
    values = {"a": [0.0, 0.5, 1.0, 1.0]}
    alone = gdpo(cards({"a": 1.0}, **values), list("gghh")).advantages
    found = cards({"a": 1.0, "n": 0.0}, **values, n=[5.0, 1.0, 2.0, 9.0])
    assert gdpo(found, list("gghh")).advantages.tolist() == alone.tolist()


def test_components_that_cancel_are_no_signal():
    found = cards({"a": 1.0, "b": 1.0}, a=[1.0, 0.0, 0.0], b=[0.0, 0.5, 0.5])
    assert gdpo(found, list("ggg")).advantages.tolist() == [0.0, 0.0, 0.0]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=4, max_size=12),
    st.floats(0.5, 100),
    st.floats(-10, 10),
)
def test_a_components_scale_and_offset_do_not_matter(rows, scale, offset):
    a, b = zip(*[(round(x, 1), round(y, 1)) for x, y in rows], strict=True)
    groups = [str(index % 2) for index in range(len(rows))]
    # With the usual eps both differ by what it weighs against the std, here by next to nothing.
    before = gdpo(cards({"a": 1.0, "b": 1.0}, a=a, b=b), groups, eps=1e-12)
    moved = cards({"a": 1.0, "b": 1.0}, a=a, b=[scale * x + offset for x in b])
    found = gdpo(moved, groups, eps=1e-12).advantages
    np.testing.assert_allclose(found, before.advantages, atol=1e-6)
