"""Credit: from score cards to the rewards, and from rewards to the advantages on tokens."""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm.config_schema import AlgorithmConfig
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.advantages import GroupAdvantages
from rlgym_llm_trainers.batch import TrainingSample, collate, sample_from_rollout, with_advantage
from rlgym_llm_trainers.kl import kl_penalty
from rlgym_llm_trainers.metrics import Metric
from rlgym_llm_trainers.shaping import kl_metrics, penalized_rewards

__all__ = ["samples_to_train", "shape_rewards", "with_advantages"]


def samples_to_train(
    rollouts: Sequence[Rollout], cards: Sequence[ScoreCard]
) -> list[TrainingSample]:
    """Samples of the rollouts that have a reward and at least one sampled token."""
    return [
        sample_from_rollout(rollout)
        for rollout, card in zip(rollouts, cards, strict=True)
        if card.reward is not None and rollout.num_tokens
    ]


def shape_rewards(
    config: AlgorithmConfig, cards: Sequence[ScoreCard], samples: Sequence[TrainingSample]
) -> tuple[list[float | None], dict[str, Metric]]:
    """Rewards in the order of the cards, minus the KL penalty where it is part of the reward."""
    rewards = [card.reward for card in cards]
    if not config.use_kl_in_reward or not samples:
        return rewards, {}
    batch = collate(samples, pad_id=0)
    assert batch.ref_logprobs is not None, "a KL penalty needs reference log-probs"
    kl = kl_penalty(batch.rollout_logprobs, batch.ref_logprobs, config.kl_penalty)
    kl_coef = config.kl_ctrl.kl_coef
    scores = {card.rollout_id: card.reward for card in cards}
    of_samples = [scores[sample.rollout_id] for sample in samples]
    penalized = penalized_rewards(of_samples, kl, batch.loss_mask, kl_coef=kl_coef)
    by_id = dict(zip((sample.rollout_id for sample in samples), penalized, strict=True))
    return (
        [by_id.get(card.rollout_id, card.reward) for card in cards],
        kl_metrics(kl, batch.loss_mask, kl_coef=kl_coef),
    )


def with_advantages(
    samples: Sequence[TrainingSample], rollouts: Sequence[Rollout], result: GroupAdvantages
) -> list[TrainingSample]:
    """The samples that may be learned from, each with its rollout's advantage on its tokens."""
    advantage = {
        rollout.id: value
        for rollout, value, is_valid in zip(
            rollouts, result.advantages.tolist(), result.is_valid.tolist(), strict=True
        )
        if is_valid
    }
    return [
        with_advantage(sample, advantage[sample.rollout_id])
        for sample in samples
        if sample.rollout_id in advantage
    ]
