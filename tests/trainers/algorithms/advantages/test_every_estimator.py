"""What every registered estimator holds to, ours and whatever is added to the list."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.options import option_names

from rlgym_llm.specs import Kind

NAN = float("nan")
SPECS = {spec.name: spec for spec in rlgym_register(Kind.ADVANTAGE)}
EVERY = pytest.mark.parametrize("name", sorted(SPECS))


REWARDS = st.sampled_from([0.0, 0.3, 0.7, 1.0]) | st.floats(0, 5)


@st.composite
def batches(draw, *, rewards=REWARDS):
    """Uneven groups in any order, observations between turns, unscored rows, junk off the mask."""
    size, length = draw(st.integers(1, 10)), draw(st.integers(1, 6))
    row = st.lists(st.booleans(), min_size=length, max_size=length)
    mask = np.array([draw(row.filter(any)) for _ in range(size)])
    is_scored = np.array(
        draw(st.lists(st.sampled_from([True] * 4 + [False]), min_size=size, max_size=size))
    )
    outcomes = np.array(draw(st.lists(rewards, min_size=size, max_size=size)))
    counts = mask & is_scored[:, None]
    token_rewards = np.full(mask.shape, NAN)
    token_rewards[counts] = 0.0
    for index in np.flatnonzero(is_scored):
        token_rewards[index, np.flatnonzero(mask[index])[-1]] = outcomes[index]
    numbers = st.lists(st.floats(-2, 2), min_size=mask.size, max_size=mask.size)
    values = np.where(counts, np.array(draw(numbers)).reshape(mask.shape), NAN)
    return AdvantageInputs(
        token_rewards=token_rewards,
        mask=mask,
        group_ids=draw(st.lists(st.sampled_from("pqr"), min_size=size, max_size=size)),
        is_scored=is_scored,
        values=values,
        baselines=np.full(size, 0.5),
        component_rewards={"outcome": np.where(is_scored, outcomes, NAN)},
        component_weights={"outcome": 1.0},
    )


@EVERY
@settings(max_examples=30)
@given(inputs=batches())
def test_finite_on_what_is_valid_and_exactly_zero_elsewhere(name, inputs):
    found = SPECS[name].load()(inputs)
    trained = inputs.mask & found.is_valid[:, None]
    assert found.advantages.dtype == np.float64
    assert np.isfinite(found.advantages).all()
    assert not found.advantages[~trained].any()
    assert not (found.is_valid & ~inputs.is_scored).any()
    if found.returns is not None:
        assert np.isfinite(found.returns).all()
        assert not found.returns[~trained].any()


@EVERY
@settings(max_examples=30)
@given(inputs=batches(), data=st.data())
def test_the_order_of_the_batch_does_not_matter(name, inputs, data):
    order = data.draw(st.permutations(range(inputs.num_rollouts)))
    moved = dataclasses.replace(
        inputs,
        token_rewards=inputs.token_rewards[order],
        mask=inputs.mask[order],
        group_ids=[inputs.group_ids[i] for i in order],
        is_scored=inputs.is_scored[order],
        values=inputs.values[order],
        component_rewards={"outcome": inputs.component_rewards["outcome"][order]},
    )
    estimate = SPECS[name].load()
    base, found = estimate(inputs), estimate(moved)
    np.testing.assert_allclose(found.advantages, base.advantages[order], atol=1e-6)
    assert found.is_valid.tolist() == base.is_valid[order].tolist()


@EVERY
@settings(max_examples=30)
@given(inputs=batches())
def test_padding_on_the_right_changes_nothing(name, inputs):
    def wider(values, fill):
        return np.concatenate([values, np.full((len(values), 2), fill, dtype=values.dtype)], axis=1)

    padded = dataclasses.replace(
        inputs,
        token_rewards=wider(inputs.token_rewards, 7.0),
        mask=wider(inputs.mask, False),
        values=wider(inputs.values, -7.0),
    )
    estimate = SPECS[name].load()
    base, found = estimate(inputs), estimate(padded)
    np.testing.assert_allclose(found.advantages, wider(base.advantages, 0.0), rtol=1e-12)


@pytest.mark.parametrize("name", sorted(n for n, spec in SPECS.items() if spec.needs_groups))
@settings(max_examples=30)
@given(inputs=batches(rewards=st.just(0.3)))
def test_siblings_that_earned_the_same_and_those_without_siblings_get_nothing(name, inputs):
    found = SPECS[name].load()(inputs)
    assert not found.advantages.any()
    scored = [g for g, ok in zip(inputs.group_ids, inputs.is_scored, strict=True) if ok]
    comparable = [scored.count(g) >= 2 for g in inputs.group_ids]
    assert found.is_valid.tolist() == (inputs.is_scored & comparable).tolist()


@EVERY
def test_every_option_has_a_default(name):
    inputs = AdvantageInputs.of_rewards([1.0, 0.0], ["g", "g"])
    inputs = dataclasses.replace(
        inputs,
        values=np.zeros((2, 1)),
        baselines=np.zeros(2),
        component_rewards={"a": np.array([1.0, 0.0])},
        component_weights={"a": 1.0},
    )
    assert SPECS[name].load()(inputs).advantages[:, 0].tolist()[0] > 0
    assert set(option_names(SPECS[name].load())) <= {
        "eps",
        "gamma",
        "lam",
        "norm_adv_by_std_in_grpo",
    }
