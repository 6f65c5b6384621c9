"""The critic of a run, made from its configuration, and which rollouts it looks beyond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlgym_llm.batch_arithmetic import BatchPlan
from rlgym_llm.compose import is_truncated
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.learner.critic import Critic
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.models.critic import load_value_model
from rlgym_llm_trainers.models.policy import Policy
from rlgym_llm_trainers.models.starter import STARTER
from rlgym_llm_trainers.training.environments import starter_kit_of

__all__ = ["cut_off", "make_critic"]


def make_critic(
    config: TrainConfig,
    policy: Policy,
    plan: BatchPlan,
    *,
    plugins: Plugins,
    model_path: str | Path,
    ranks: Ranks = ALONE,
    note: Callable[[str], None] | None = None,
) -> Critic:
    """Loads the value model, by default on the body of the model at ``model_path``."""
    critic, sizes, fsdp = config.critic, plan.critic, config.actor.fsdp_config
    assert sizes is not None, "the plan is of a run with a critic"
    path: str | Path = critic.model.path or model_path
    if path == STARTER:
        path = starter_kit_of(config, plugins).model
    model = load_value_model(
        path,
        policy=policy,
        num_positions=config.data.max_prompt_length + config.data.max_response_length,
        dtype=config.model.dtype,
        trust_remote_code=config.model.trust_remote_code,
        gradient_checkpointing=config.model.enable_gradient_checkpointing,
    )
    return Critic(
        model,
        policy,
        critic,
        loss_agg_mode=critic.loss_agg_mode or config.actor.loss_agg_mode,
        mini_batch_prompts=sizes.mini_batch_prompts,
        micro_batch_size=sizes.micro_batch_size,
        max_tokens=sizes.max_tokens,
        num_epochs=sizes.ppo_epochs,
        max_response_length=config.data.max_response_length,
        num_updates=plan.num_critic_updates or 0,
        shuffle_seed=config.trainer.seed if config.actor.shuffle else None,
        ranks=ranks,
        balances=config.trainer.balance_batch,
        offloads_parameters=fsdp.param_offload,
        offloads_optimizer=fsdp.optimizer_offload,
        note=note,
    )


def cut_off(
    rollouts: Sequence[Rollout], config: TrainConfig, rewards: RewardsConfig
) -> frozenset[str]:
    """Ids of the rollouts whose reward does not say what their last state is worth.

    A budget cut them off (``critic.bootstrap_truncated``), and their reward was kept as it is: a
    rule that takes something off for that has said it.
    """
    if not config.critic.bootstrap_truncated or rewards.on_truncated != "keep":
        return frozenset()
    return frozenset(rollout.id for rollout in rollouts if is_truncated(rollout))
