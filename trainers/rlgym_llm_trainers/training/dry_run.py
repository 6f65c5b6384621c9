"""What ``--dry-run`` finds out: all that can be seen of a run without torch and a model."""

from __future__ import annotations

from rlgym_llm.batch_arithmetic import BatchPlan, plan_batches
from rlgym_llm.compose import RewardComposer
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind
from rlgym_llm_trainers.learner.estimator import load_estimator, needs_baseline, needs_critic
from rlgym_llm_trainers.training.environments import make_env
from rlgym_llm_trainers.training.loggers import check_loggers
from rlgym_llm_trainers.training.resume import find_start
from rlgym_llm_trainers.training.run_rewards import accuracy_of, check_scoring, rewards_of
from rlgym_llm_trainers.training.settings import (
    check_dump_folders,
    check_dump_places,
    check_settings,
)
from rlgym_llm_trainers.training.signal_filter import check_signal
from rlgym_llm_trainers.training.val_env import make_val_env

__all__ = ["dry_run"]


def dry_run(config: TrainConfig, plugins: Plugins, *, dp_size: int) -> BatchPlan:
    """The batch arithmetic of the run over ``dp_size`` ranks; nothing is written.

    Raises UserError for what the run would be refused for, as far as that is seen here: no loss and
    no generator is made, no weights are read, no prompt is counted in tokens, no folder is made.
    """
    check_settings(config, plugins)
    check_loggers(config.trainer.logger)
    if config.rollout.name != "auto":
        plugins.get(Kind.GENERATOR, config.rollout.name)
    check_dump_places(config.trainer)
    if not find_start(config).run.goes_on:
        check_dump_folders(config.trainer)
    trains = not config.trainer.val_only
    train_env = make_env(config, plugins, role="train") if trains else None
    val_env = make_val_env(config, plugins, note=lambda _: None)
    env = train_env or val_env
    assert env is not None, "a run trains or validates"
    num_prompts = None if train_env is None else len(train_env.tasks)  # this reads the data
    if val_env is not None:
        len(val_env.tasks)
    rewards = rewards_of(config, env)
    load_estimator(config, rewards, plugins)
    greedy = needs_baseline(config, plugins)
    check_scoring(config, RewardComposer(rewards, plugins), needs_baseline=greedy)
    check_signal(config.algorithm.filter_groups, rewards, accuracy_of(env, rewards, plugins))
    return plan_batches(
        config,
        dp_size=dp_size,
        num_prompts=num_prompts,
        has_critic=trains and needs_critic(config, plugins),
    )
