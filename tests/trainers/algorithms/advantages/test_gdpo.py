import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gdpo import gdpo

NAN = float("nan")


def estimate(weights, groups, *, is_scored=None, eps=1e-6, **values):
    columns = {name: np.array(column, dtype=np.float64) for name, column in values.items()}
    total = sum(weights[name] * np.nan_to_num(column) for name, column in columns.items())
    scored = np.ones(len(total), dtype=bool) if is_scored is None else np.array(is_scored)
    inputs = AdvantageInputs(
        token_rewards=total[:, None],
        mask=np.ones((len(total), 1), dtype=bool),
        group_ids=groups,
        is_scored=scored,
        component_rewards=columns,
        component_weights=weights,
    )
    return gdpo(inputs, eps=eps)


def test_components_pull_by_their_weights_and_not_by_their_spread():
    found = estimate({"a": 1.0, "b": 1.0}, "gggg", a=[0, 0, 1, 1], b=[0, 100, 0, 100])
    # Each alone is -.866, -.866, .866, .866 in its order; their sums -1.732, 0, 0, 1.732 have
    # (unbiased) std sqrt(6 / 3) = 1.4142, so 1.2247.
    expected = [-(1.5**0.5), 0.0, 0.0, 1.5**0.5]
    assert found.advantages[:, 0] == pytest.approx(expected, abs=1e-5)


def test_weights_count():
    found = estimate({"a": 2.0, "b": 1.0}, "gggg", a=[0, 0, 1, 1], b=[0, 1, 0, 1])
    # 2 * -.866 - .866, ...: -2.598, -.866, .866, 2.598 over their std sqrt(15 / 3) = 2.2361.
    expected = [-1.1619, -0.3873, 0.3873, 1.1619]
    assert found.advantages[:, 0] == pytest.approx(expected, abs=1e-4)


def test_what_does_not_apply_adds_nothing_and_what_is_unscored_stays_out():
    found = estimate(
        {"a": 1.0, "b": 1.0},
        "ggggg",
        is_scored=[True] * 4 + [False],
        a=[0, 1, 0, 1, NAN],
        b=[NAN, NAN, 0.5, 0.5, NAN],
    )
    assert found.is_valid.tolist() == [True, True, True, True, False]
    # b's two siblings are equal: 0. a: -.866, .866, ... and std 1.
    half = 0.75**0.5
    assert found.advantages[:, 0] == pytest.approx([-half, half, -half, half, 0], abs=1e-5)


def test_a_metric_changes_nothing():
    values = [0.0, 0.5, 1.0, 1.0]
    alone = estimate({"a": 1.0}, "gghh", a=values)
    found = estimate({"a": 1.0, "n": 0.0}, "gghh", a=values, n=[5, 1, 2, 9])
    assert found.advantages.tolist() == alone.advantages.tolist()


def test_components_that_cancel_are_no_signal():
    found = estimate({"a": 1.0, "b": 1.0}, "ggg", a=[1, 0, 0], b=[0, 0.5, 0.5])
    assert found.advantages[:, 0].tolist() == [0.0, 0.0, 0.0]


def test_without_components_it_is_refused():
    with pytest.raises(ValueError, match="needs the components"):
        gdpo(AdvantageInputs.of_rewards([0, 1], ["g", "g"]))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=4, max_size=12),
    st.floats(0.5, 100),
    st.floats(-10, 10),
)
def test_a_components_scale_and_offset_do_not_matter(rows, scale, offset):
    a, b = zip(*[(round(x, 1), round(y, 1)) for x, y in rows], strict=True)
    groups = [str(index % 2) for index in range(len(rows))]
    weights = {"a": 1.0, "b": 1.0}
    # With the usual eps both differ by what it weighs against the std, here by next to nothing.
    before = estimate(weights, groups, eps=1e-12, a=a, b=b)
    moved = estimate(weights, groups, eps=1e-12, a=a, b=[scale * x + offset for x in b])
    np.testing.assert_allclose(moved.advantages, before.advantages, atol=1e-6)
