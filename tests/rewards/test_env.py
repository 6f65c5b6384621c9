import pytest
from rlgym_llm_rewards.env import Env

from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.placement import token_rewards
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig
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
    score = Env().score(rollout, RewardContext())
    assert (score and score.value) == value
    spans = [(s.value, s.char_start, s.char_end) for s in (score.steps if score else ())]
    # "a\na\na": turn k covers [2k, 2k + 1).
    assert spans == [(r, 2 * k, 2 * k + 1) for k, r in enumerate(given) if r is not None]


def test_each_turn_is_paid_on_its_own_last_token():
    """0.5 and 0.25 with weight 2: 1.0 at the end of the first turn, 0.5 of the second."""
    turns = tuple(
        Turn(
            new_prompt_token_ids=(),
            completion=Completion(text=text, token_ids=ids),
            env_reward=reward,
        )
        for text, ids, reward in [("go", (1, 2), 0.5), ("", (3, 4, 5), 0.25)]
    )
    task = Task(prompt="?")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    component = {"reward": "env", "weight": 2.0, "placement": "turn"}
    config = RewardsConfig.model_validate({"components": {"game": component}})
    with RewardComposer(config, Plugins.discover()) as composer:
        [card] = composer([rollout])
    assert card.reward == 1.5
    assert token_rewards(rollout, card, config.components) == ((0.0, 1.0), (0.0, 0.0, 0.5))
