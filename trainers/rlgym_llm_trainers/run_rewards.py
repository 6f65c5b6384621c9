"""The rewards of a run: which they are, which says right or wrong, what they ask of it."""

from __future__ import annotations

from rlgym_llm.compose import RewardComposer
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError
from rlgym_llm.reward_config import RewardsConfig

__all__ = ["check_scoring", "rewards_of"]


def rewards_of(config: TrainConfig, env: TextEnv) -> RewardsConfig:
    """The run's rewards: those given, else the environment's own."""
    rewards = config.rewards or env.rewards
    if not rewards.components:  # only the rules were given, so the environment's terms stay
        rewards = rewards.model_copy(update={"components": env.rewards.components})
    return rewards


def check_scoring(config: TrainConfig, composer: RewardComposer) -> None:
    """Raises ConfigError for what the rewards ask of the run and it does not give."""
    if composer.needs_groups and config.rollout.n == 1:
        raise ConfigError(
            "--rollout.n 1: a reward of scope group compares the responses to a prompt with each "
            "other; take 2 or more"
        )
    if composer.config.aggregate == "normalize_then_sum" and config.algorithm.use_kl_in_reward:
        raise ConfigError(
            "rewards.aggregate normalize_then_sum: normalises components one by one, and the KL "
            "penalty is none of them; take --actor.use_kl_loss in place of "
            "--algorithm.use_kl_in_reward"
        )
