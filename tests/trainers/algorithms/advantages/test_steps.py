import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.groups import grpo
from rlgym_llm_trainers.algorithms.advantages.steps import grpo_step

NAN = float("nan")


def siblings(token_rewards, mask=None, **changes):
    rewards = np.array(token_rewards, dtype=np.float64)
    given = {
        "token_rewards": rewards,
        "mask": np.ones(rewards.shape, dtype=bool) if mask is None else np.array(mask) > 0,
        "group_ids": ("g",) * len(rewards),
        "is_scored": np.ones(len(rewards), dtype=bool),
    }
    return AdvantageInputs(**given | changes)


def test_a_token_counts_the_steps_that_end_at_it_or_later():
    ends = np.array([[0, 1, 1], [0, 1, 1]]) > 0
    found = grpo_step(siblings([[0, 1, 0], [0, 0, 1]], step_ends=ends))
    # Steps 1, 0 and 0, 1: mean .5, std .57735; normalised .866, -.866 and -.866, .866.
    a = 0.8660239
    expected = [[0, 0, -a], [0, 0, a]]
    assert found.advantages == pytest.approx(np.array(expected), abs=1e-6)


def test_a_rollout_of_more_steps_and_an_observation_between_them():
    rewards = [[0, 1, NAN, 0, 1], [0, 0, NAN, NAN, NAN]]
    mask = [[0, 1, 0, 1, 1], [0, 1, 0, 0, 0]]
    ends = np.array([[0, 1, 0, 0, 1], [0, 1, 0, 0, 0]]) > 0
    found = grpo_step(siblings(rewards, mask, step_ends=ends), norm_adv_by_std_in_grpo=False)
    # Steps 1, 1 and 0, mean 2/3: 1/3, 1/3, -2/3.
    expected = [[0, 2 / 3, 0, 1 / 3, 1 / 3], [0, -2 / 3, 0, 0, 0]]
    assert found.advantages == pytest.approx(np.array(expected))


def test_the_last_step_reaches_to_the_end_and_earns_what_stands_there():
    ends = np.array([[1, 0, 0], [1, 0, 0]]) > 0
    found = grpo_step(siblings([[1, 0, 1], [0, 0, 0]], step_ends=ends))
    assert found.advantages[0].tolist() == [found.advantages[0, 0]] * 3
    assert found.advantages[0, 0] == pytest.approx(2**-0.5, abs=1e-6)


def test_a_step_worth_nothing_is_a_step():
    ends = np.array([[1, 1], [1, 1]]) > 0
    with_zeros = grpo_step(siblings([[0, 1], [0, 1]], step_ends=ends))
    # Over 0, 1, 0, 1; were the zeros no steps, all would be equal.
    assert with_zeros.advantages[0] == pytest.approx([0, 0.866024], abs=1e-6)


def test_steps_that_are_all_equal_are_exactly_zero():
    found = grpo_step(siblings([[0.3, 0.3, 0.3], [0.3, 0.3, 0.3]]))
    assert not found.advantages.any()
    assert found.is_valid.all()


def test_a_rollout_alone_is_not_valid():
    found = grpo_step(siblings([[1, 0], [0, 1]], group_ids=("p", "q")))
    assert not found.advantages.any()
    assert not found.is_valid.any()


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.integers(1, 4))
def test_with_outcomes_alone_it_is_grpo(outcomes, length):
    rewards = np.zeros((len(outcomes), length))
    rewards[:, -1] = outcomes
    inputs = siblings(rewards)
    assert grpo_step(inputs).advantages.tolist() == grpo(inputs).advantages.tolist()
