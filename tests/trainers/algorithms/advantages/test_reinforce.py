import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.reinforce import (
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    remax,
    reward_to_go,
)

NAN = float("nan")


def two_rollouts(**changes):
    """A turn of two tokens, an observation, a turn of one; and one token."""
    given = {
        "token_rewards": np.array([[NAN, 0.0, 1.0, NAN, 4.0], [NAN, 2.0, NAN, NAN, NAN]]),
        "mask": np.array([[0, 1, 1, 0, 1], [0, 1, 0, 0, 0]], dtype=bool),
        "group_ids": ("g", "g"),
        "is_scored": np.array([True, True]),
    }
    return AdvantageInputs(**given | changes)


def test_an_observation_neither_discounts_nor_forgets():
    inputs = two_rollouts()
    found = reward_to_go(inputs.token_rewards, inputs.mask, gamma=0.5)
    # 4; 1 + .5 * 4 = 3; 0 + .5 * 3 = 1.5.
    assert found.tolist() == [[0, 1.5, 3.0, 0, 4.0], [0, 2.0, 0, 0, 0]]


def test_returns_are_whitened_over_all_tokens():
    found = reinforce_plus_plus(two_rollouts(), gamma=0.5)
    # 1.5, 3, 4, 2: mean 2.625, squares 1.265625 + .140625 + 1.890625 + .390625 = 3.6875 over 3:
    # std 1.108678.
    expected = [[0, -1.014722, 0.338241, 0, 1.240215], [0, -0.563734, 0, 0, 0]]
    assert found.advantages == pytest.approx(np.array(expected), abs=1e-6)
    assert found.is_valid.all()


def test_unscored_rollouts_leave_the_whitening():
    found = reinforce_plus_plus(two_rollouts(is_scored=np.array([True, False])), gamma=0.5)
    # 1.5, 3, 4 alone: mean 2.8333, std 1.258306.
    expected = [[0, -1.059626, 0.132453, 0, 0.927173], [0, 0, 0, 0, 0]]
    assert found.advantages == pytest.approx(np.array(expected), abs=1e-6)
    assert found.is_valid.tolist() == [True, False]


def test_the_baseline_is_the_groups_mean():
    rewards, groups = [1.0, 0.0, 5.0, 5.0], ["p", "p", "q", "q"]
    found = reinforce_plus_plus_baseline(AdvantageInputs.of_rewards(rewards, groups))
    # .5, -.5, 0, 0: mean 0, variance .5 / 3, std .408248.
    assert found.advantages[:, 0] == pytest.approx([1.224745, -1.224745, 0, 0], abs=1e-6)


def test_a_rollout_alone_has_no_baseline_and_is_not_its_own_advantage():
    found = reinforce_plus_plus_baseline(
        AdvantageInputs.of_rewards([1.0, 0.0, 9.0], ["p", "p", "alone"])
    )
    assert found.is_valid.tolist() == [True, True, False]
    assert found.advantages[:, 0] == pytest.approx([2**-0.5, -(2**-0.5), 0], abs=1e-6)


def test_remax_takes_the_greedy_siblings_reward_off():
    found = remax(two_rollouts(baselines=np.array([0.5, NAN])))
    # To go 5, 5, 4, less .5; the other has no greedy sibling.
    assert found.advantages.tolist() == [[0, 4.5, 4.5, 0, 3.5], [0, 0, 0, 0, 0]]
    assert found.is_valid.tolist() == [True, False]
    with pytest.raises(ValueError, match="needs the rewards of greedy siblings"):
        remax(two_rollouts())


@given(st.data())
def test_with_outcomes_alone_every_token_of_a_rollout_has_the_same(data):
    size = data.draw(st.integers(2, 6))
    mask = np.array(
        data.draw(
            st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=size, max_size=size)
        )
    )
    outcomes = data.draw(st.lists(st.floats(-5, 5), min_size=size, max_size=size))
    token_rewards = np.zeros(mask.shape)
    for row, outcome in enumerate(outcomes):
        if mask[row].any():
            token_rewards[row, np.flatnonzero(mask[row])[-1]] = outcome
    inputs = AdvantageInputs(
        token_rewards=token_rewards,
        mask=mask,
        group_ids=("g",) * size,
        is_scored=np.ones(size, dtype=bool),
    )
    for row in range(size):
        found = reinforce_plus_plus(inputs).advantages[row, mask[row]]
        assert len(set(found.tolist())) <= 1
