"""A collection of rollouts put together from its settings: model, environment, tasks, rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.coverage import check_coverage
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.rollout import EpisodeLimits
from rlgym_llm.types import Task
from rlgym_llm_trainers.environments import has_validation_tasks, make_env
from rlgym_llm_trainers.fixed_settings import fixed_settings
from rlgym_llm_trainers.preparation import (
    closed_on_error,
    episode_limits,
    find_model,
    first_tasks,
    fitting_tasks,
    open_model,
    training_params,
    turn_batching,
)
from rlgym_llm_trainers.rollout_settings import RolloutSettings
from rlgym_llm_trainers.run_rewards import check_scoring, rewards_of
from rlgym_llm_trainers.training_generator import TrainingGenerator

__all__ = ["RolloutSession", "open_rollout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSession:
    """All that collecting needs, made and checked."""

    generator: TrainingGenerator
    tasks: tuple[Task, ...]
    """Those whose prompt fits ``data.max_prompt_length``."""
    envs: EnvPool
    composer: RewardComposer | None
    """None where nothing is scored."""
    params: SamplingParams
    limits: EpisodeLimits
    batching: Batching | None
    """How turns become batches; None where the generator makes its own."""
    fixed: dict[str, Any]
    """What the rollouts and their scores depend on, as plain data."""

    def close(self) -> None:
        """Lets go of rewards, environments and the generator."""
        if self.composer is not None:
            self.composer.close()
        self.envs.close()
        self.generator.close()


def open_rollout(settings: RolloutSettings, note: Callable[[str], None]) -> RolloutSession:
    """Makes the session. Raises UserError, in one line, for whatever cannot work.

    What costs little is checked first, so that a typing error does not wait for a model.
    """
    config, plugins = settings.config, settings.plugins
    source = find_model(config, plugins)
    if settings.split == "val" and not has_validation_tasks(config, plugins):
        raise ConfigError(
            f"--split val: environment {config.env.id} has no validation tasks of its own; "
            "give --data.val, or --split train"
        )
    env = make_env(config, plugins, role=settings.split)
    rewards, composer = None, None
    if settings.is_scored:
        rewards = rewards_of(config, env)
        composer = RewardComposer(rewards, plugins)
        check_scoring(config, composer)
    policy, generator = open_model(config, source)
    with closed_on_error(generator):
        kind = "training" if settings.split == "train" else "validation"
        first = first_tasks(env, settings.max_tasks)
        tasks = fitting_tasks(config, first, generator, note, env=env, kind=kind)
        if rewards is not None:
            check_coverage(rewards, tasks)
        params = training_params(config)
        fixed = fixed_settings(
            config,
            plugins,
            policy=policy,
            tasks=tasks,
            num_samples=settings.group_size,
            params=params,
            rewards=rewards,
        )
    return RolloutSession(
        generator=generator,
        tasks=tasks,
        envs=EnvPool(lambda: env),
        composer=composer,
        params=params,
        limits=episode_limits(config, policy),
        batching=turn_batching(config, generator),
        fixed={"split": settings.split, **fixed},
    )
