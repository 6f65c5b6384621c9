import pytest
from rlgym_llm_rewards.env import Env

from rlgym_llm.rewards import RewardContext
from rlgym_llm.types import Completion, Rollout, Task, Turn


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ([1.0, None, 0.5], 1.5),
        ([0.0], 0.0),
        ([-2.0, 0.25], -1.75),
        ([0.1] * 10, 1.0),  # summed exactly
        ([None, None], None),
        ([], None),
    ],
)
def test_sum_of_the_turns(given, value):
    turns = tuple(
        Turn(new_prompt_token_ids=(), completion=Completion(text="a"), env_reward=reward)
        for reward in given
    )
    task = Task(prompt="?")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    assert Env().score(rollout, RewardContext()) == value
