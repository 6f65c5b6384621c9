"""Every health rule by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlgym_llm.config_health import HealthRule
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm_trainers.training.health import (
    critic_rules,
    policy_rules,
    reward_rules,
    sample_rules,
)
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History

__all__ = ["RULES", "Rule"]

Rule = Callable[[History, TrainConfig], Finding | None]
"""Judges the newest step of a history; None where it finds nothing, or has too few steps."""

RULES: Mapping[HealthRule, Rule] = {
    "reward_drop": reward_rules.reward_drop,
    "reward_spread": reward_rules.reward_spread,
    "noise_rewards": reward_rules.noise_rewards,
    "zero_variance_groups": reward_rules.zero_variance_groups,
    "component_scale": reward_rules.component_scale,
    "truncation": sample_rules.truncation,
    "dropped_rows": sample_rules.dropped_rows,
    "mask_sanity": sample_rules.mask_sanity,
    "logprob_mismatch": sample_rules.logprob_mismatch,
    "stale_samples": sample_rules.stale_samples,
    "clip_fraction": policy_rules.clip_fraction,
    "policy_still": policy_rules.policy_still,
    "kl_spike": policy_rules.kl_spike,
    "kl_flat": policy_rules.kl_flat,
    "dead_gradient": policy_rules.dead_gradient,
    "skipped_steps": policy_rules.skipped_steps,
    "loss_swings": policy_rules.loss_swings,
    "explained_variance": critic_rules.explained_variance,
    "value_loss": critic_rules.value_loss,
    "value_drift": critic_rules.value_drift,
}
