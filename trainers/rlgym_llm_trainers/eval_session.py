"""An evaluation put together from its settings: model, environment, tasks, rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.generate import Generator, SamplingParams
from rlgym_llm.rollout import EpisodeLimits
from rlgym_llm.types import Task
from rlgym_llm_trainers.environments import make_env
from rlgym_llm_trainers.eval_settings import EvalSettings
from rlgym_llm_trainers.fixed_settings import fixed_settings
from rlgym_llm_trainers.preparation import (
    closed_on_error,
    episode_limits,
    find_model,
    open_model,
    turn_batching,
    validation_params,
    validation_tasks,
)
from rlgym_llm_trainers.run_rewards import Accuracy, accuracy_of, rewards_of

__all__ = ["EvalSession", "open_eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSession:
    """All that an evaluation needs, made and checked."""

    generator: Generator
    tasks: tuple[Task, ...]
    """Those whose prompt fits ``data.max_prompt_length``."""
    envs: EnvPool
    composer: RewardComposer
    accuracy: Accuracy
    """The reward component that says whether an answer is right."""
    params: SamplingParams
    limits: EpisodeLimits
    batching: Batching | None
    """How turns become batches for the generator."""
    fixed: dict[str, Any]
    """What the rollouts and their scores depend on, as plain data."""

    def close(self) -> None:
        """Lets go of rewards, environments and the generator."""
        self.composer.close()
        self.envs.close()
        self.generator.close()


def open_eval(settings: EvalSettings, note: Callable[[str], None]) -> EvalSession:
    """Makes the session. Raises UserError, in one line, for whatever cannot work.

    What costs little is checked first, so that a typing error does not wait for a model.
    """
    config, plugins = settings.config, settings.plugins
    source = find_model(config, plugins)
    env = make_env(config, plugins, role="val")
    rewards = rewards_of(config, env)
    composer = RewardComposer(rewards, plugins, evaluation=True)
    policy, generator = open_model(config, source)
    params = validation_params(config)
    with closed_on_error(generator):
        tasks = validation_tasks(config, env, generator, note)
        fixed = fixed_settings(
            config,
            plugins,
            policy=policy,
            tasks=tasks,
            num_samples=settings.num_samples,
            params=params,
            rewards=rewards,
        )
    return EvalSession(
        generator=generator,
        tasks=tasks,
        envs=EnvPool(lambda: env),
        composer=composer,
        accuracy=accuracy_of(env, rewards, plugins),
        params=params,
        limits=episode_limits(config, policy),
        batching=turn_batching(config, generator),
        fixed=fixed,
    )
