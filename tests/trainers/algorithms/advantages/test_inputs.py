import dataclasses

import numpy as np
import pytest
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs, Advantages

NAN = float("nan")


def inputs(**changes):
    given = {
        "token_rewards": np.array([[NAN, 0.5, NAN, 1.0], [NAN, NAN, NAN, NAN]]),
        "mask": np.array([[0, 1, 0, 1], [0, 1, 1, 0]], dtype=bool),
        "group_ids": ("g", "g"),
        "is_scored": np.array([True, False]),
    }
    return AdvantageInputs(**given | changes)


def test_what_does_not_count_may_be_nan():
    assert inputs().sequence_rewards.tolist() == [1.5, 0.0]


def test_the_reward_of_the_sequence_is_the_one_given():
    assert inputs(rewards=np.array([2.0, NAN])).sequence_rewards.tolist() == [2.0, 0.0]


def test_sums_that_are_equal_are_equal_to_the_bit():
    # .1 + .2 + .7 and .7 + .2 + .1 differ in the last digit when added one by one.
    rows = np.array([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]])
    same = inputs(
        token_rewards=rows, mask=np.ones((2, 3), dtype=bool), is_scored=np.array([True, True])
    )
    assert rows[0, 0] + rows[0, 1] + rows[0, 2] != rows[1, 0] + rows[1, 1] + rows[1, 2]
    assert same.sequence_rewards[0] == same.sequence_rewards[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"group_ids": ("g",)}, "2 rollouts but 1 group ids"),
        ({"mask": np.ones((2, 3), dtype=bool)}, r"mask must be \[2, 4\], got \[2, 3\]"),
        ({"token_rewards": np.zeros(2)}, r"must be \[N, T\]"),
        ({"rewards": np.array([NAN, 0.0])}, "rewards of rollout 0 holds nan"),
        ({"values": np.array([[0, np.inf, 0, 0], [0.0] * 4])}, "values of rollout 0 holds inf"),
        ({"baselines": np.zeros(3)}, "baselines must be"),
        ({"component_rewards": {"a": np.zeros(2)}}, "component 'a' has no weight"),
        (
            {"component_rewards": {"a": np.full(2, np.inf)}, "component_weights": {"a": 1.0}},
            "component 'a' of rollout 0 holds inf",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        inputs(**changes)


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
def test_rewards_that_are_no_number_are_refused(bad):
    with pytest.raises(ValueError, match="token_rewards of rollout 1 holds"):
        AdvantageInputs.of_rewards([0.0, bad], ["g", "g"])


def test_a_value_a_rollout_lands_on_its_sampled_tokens_alone():
    both = dataclasses.replace(inputs(), token_rewards=np.zeros((2, 4)))
    found = Advantages.broadcast(both, np.array([0.5, 7.0]), np.array([True, False]))
    assert found.advantages.tolist() == [[0, 0.5, 0, 0.5], [0, 0, 0, 0]]
    assert found.metrics["num_unscored"].result() == 1
    assert found.metrics["num_dropped"].result() == 1
