"""From score cards to advantages on tokens: what is unscored is not learned from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlgym_llm_trainers.advantages import grpo_advantages
from rlgym_llm_trainers.credit import samples_to_train, shape_rewards, with_advantages

from rlgym_llm.config_schema import AlgorithmConfig
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.types import Completion, Rollout, Task, Turn

REWARDS = [1.0, 0.0, None, 1.0]


def rollout(index):
    completion = Completion(
        text="ab", token_ids=(4, 5), logprobs=(-0.1, -0.2), version_spans=((0, 2, 0),)
    )
    return Rollout(
        id=str(index),
        task=Task(prompt="q"),
        group_id="g",
        sample_index=index,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(1, 2), completion=completion),),
    )


def card(index, reward):
    status = CardStatus.FAILED_REWARD if reward is None else CardStatus.SCORED
    return ScoreCard(rollout_id=str(index), reward=reward, status=status, components={})


@pytest.fixture
def batch():
    rollouts = [rollout(i) for i in range(4)]
    cards = [card(i, reward) for i, reward in enumerate(REWARDS)]
    return rollouts, cards, samples_to_train(rollouts, cards)


def test_unscored_rollouts_give_no_sample_and_do_not_move_the_baseline(batch):
    rollouts, cards, samples = batch
    assert [sample.rollout_id for sample in samples] == ["0", "1", "3"]
    rewards, metrics = shape_rewards(AlgorithmConfig(), cards, samples)
    assert rewards == REWARDS
    assert metrics == {}
    result = grpo_advantages(rewards, ["g"] * 4, norm_by_std=False)
    trained = with_advantages(samples, rollouts, result)
    # The mean over the three scored siblings is 2/3.
    assert trained[1].advantages == pytest.approx((0, 0, -2 / 3, -2 / 3))
    assert trained[2].advantages == pytest.approx((0, 0, 1 / 3, 1 / 3))


def test_kl_in_the_reward_is_taken_off_each_rollout(batch):
    _, cards, samples = batch
    samples = [replace(sample, ref_logprobs=(0.0, 0.0, -0.6, -0.5)) for sample in samples]
    config = AlgorithmConfig(use_kl_in_reward=True, kl_ctrl={"kl_coef": 0.5})
    rewards, metrics = shape_rewards(config, cards, samples)
    # k1 = logp - ref: (-0.1 + 0.6) + (-0.2 + 0.5) = 0.8, times 0.5.
    assert rewards[:2] == pytest.approx([0.6, -0.4])
    assert rewards[2] is None
    assert metrics["actor/reward_kl_penalty"].result() == pytest.approx(0.4)
