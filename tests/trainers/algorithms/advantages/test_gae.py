import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gae import gae, lambda_advantages
from rlgym_llm_trainers.algorithms.advantages.whiten import whiten

NAN = float("nan")
MASK = np.array([[0, 1, 1, 0, 0, 1]], dtype=bool)
REWARDS = np.array([[NAN, 0.0, 0.25, NAN, NAN, 1.0]])
VALUES = np.array([[NAN, 0.5, 0.25, NAN, 99.0, 0.5]])


def inputs(**changes):
    given = {
        "token_rewards": REWARDS,
        "mask": MASK,
        "group_ids": ("g",),
        "is_scored": np.array([True]),
        "values": VALUES,
    }
    return AdvantageInputs(**given | changes)


def test_values_and_advantages_are_carried_through_observations():
    found = lambda_advantages(REWARDS, VALUES, MASK, gamma=0.5, lam=0.5)
    # Last: 1 - .5 = .5. Before the observation: .25 + .5 * .5 - .25 = .25, + .25 * .5 = .375.
    # First: 0 + .5 * .25 - .5 = -.375, + .25 * .375 = -.28125.
    assert found.tolist() == [[0, -0.28125, 0.375, 0, 0, 0.5]]


def test_returns_are_taken_before_whitening():
    found = gae(inputs(), gamma=0.5, lam=0.5)
    assert found.returns.tolist() == [[0, 0.21875, 0.625, 0, 0, 1.0]]
    plain = np.array([[0, -0.28125, 0.375, 0, 0, 0.5]])
    assert found.advantages.tolist() == whiten(plain, MASK).tolist()
    assert found.advantages[MASK].mean() == pytest.approx(0, abs=1e-12)


def test_a_truncated_episode_counts_on_what_would_have_followed():
    found = gae(inputs(bootstrap_values=np.array([2.0])), gamma=0.5, lam=0.0)
    # The last delta is 1 + .5 * 2 - .5 = 1.5; the others do not see it with lam 0.
    assert found.returns.tolist() == [[0, 0.125, 0.5, 0, 0, 2.0]]


def test_two_plus_three():
    # State "2 + 3 = ", action "5", then end-of-text; reward 1 at the end.
    rewards, values = np.array([[0.0, 0.0, 1.0]]), np.array([[0.0, 0.5, 0.5]])
    mask = np.array([[False, True, True]])
    found = lambda_advantages(rewards, values, mask, gamma=1.0, lam=0.95)
    # delta = 0 + .5 - .5 = 0 and 1 - .5 = .5.
    assert found == pytest.approx(np.array([[0, 0.95 * 0.5, 0.5]]))


def test_with_lambda_one_the_returns_are_the_rewards_to_go():
    found = gae(inputs())
    assert found.returns == pytest.approx(np.array([[0, 1.25, 1.25, 0, 0, 1.0]]))


def test_unscored_rows_leave_everything():
    both = inputs(
        token_rewards=np.concatenate([REWARDS, np.full_like(REWARDS, NAN)]),
        mask=np.concatenate([MASK, MASK]),
        group_ids=("g", "g"),
        is_scored=np.array([True, False]),
        values=np.concatenate([VALUES, np.full_like(VALUES, NAN)]),
    )
    found = gae(both, gamma=0.5, lam=0.5)
    alone = gae(inputs(), gamma=0.5, lam=0.5)
    assert found.advantages[0].tolist() == alone.advantages[0].tolist()
    assert not found.advantages[1].any()
    assert not found.returns[1].any()
    assert found.is_valid.tolist() == [True, False]


def test_without_a_critic_it_is_refused():
    with pytest.raises(ValueError, match="needs the values of a critic"):
        gae(inputs(values=None))


@given(st.data())
def test_equals_gae_on_the_sampled_tokens_alone(data):
    length = data.draw(st.integers(1, 12))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=length, max_size=length)))
    numbers = st.lists(st.floats(-3, 3), min_size=length, max_size=length)
    rewards, values = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    gamma, lam, final = data.draw(st.tuples(*[st.floats(0, 1)] * 3))
    found = lambda_advantages(
        rewards[None],
        values[None],
        mask[None],
        gamma=gamma,
        lam=lam,
        bootstrap_values=np.array([final]),
    )[0]
    assert not found[~mask].any()
    advantage, following, expected = 0.0, final, []
    for reward, value in zip(rewards[mask][::-1], values[mask][::-1], strict=True):
        advantage = reward + gamma * following - value + gamma * lam * advantage
        following = value
        expected.insert(0, advantage)
    assert found[mask] == pytest.approx(np.array(expected), abs=1e-12)


@given(st.floats(-10, 10))
def test_what_is_masked_never_enters(junk):
    filled = dataclasses.replace(
        inputs(),
        token_rewards=np.where(MASK, REWARDS, junk),
        values=np.where(MASK, VALUES, -junk),
    )
    found, base = gae(filled, lam=0.9), gae(inputs(), lam=0.9)
    assert found.advantages.tolist() == base.advantages.tolist()
    assert found.returns.tolist() == base.returns.tolist()
