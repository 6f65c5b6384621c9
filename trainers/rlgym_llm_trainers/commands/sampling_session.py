"""What a command that samples without training works with: model, environment, tasks, rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.coverage import check_coverage
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.rollout import EpisodeLimits
from rlgym_llm.types import Task
from rlgym_llm_trainers.commands.fixed_settings import fixed_settings
from rlgym_llm_trainers.generators.training_generator import TrainingGenerator
from rlgym_llm_trainers.training.environments import has_validation_tasks, make_env
from rlgym_llm_trainers.training.preparation import (
    closed_on_error,
    episode_limits,
    find_model,
    first_tasks,
    fitting_tasks,
    open_model,
    turn_batching,
)
from rlgym_llm_trainers.training.run_rewards import (
    Accuracy,
    accuracy_of,
    check_group_size,
    rewards_of,
)

__all__ = ["SamplingPlan", "SamplingSession", "open_sampling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """What a command samples, and the flags by which its errors name the way out."""

    config: TrainConfig
    plugins: Plugins
    split: Literal["train", "val"]
    """Whose tasks are sampled."""
    max_tasks: int | None
    """So many of them, the first ones; None is all."""
    num_samples: int
    """Rollouts a task."""
    params: SamplingParams
    scores_for: Literal["training", "evaluation"] | None
    """What the rewards are scored for; None where nothing is scored."""
    samples_flag: str
    """The flag of ``num_samples``."""
    split_flag: str = ""
    """How an error about the split begins."""
    without_split: str
    """What to do where the environment has no validation tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSession:
    """All that sampling needs, made and checked."""

    generator: TrainingGenerator
    tasks: tuple[Task, ...]
    """Those whose prompt fits ``data.max_prompt_length``."""
    envs: EnvPool
    composer: RewardComposer | None
    """None where nothing is scored."""
    accuracy: Accuracy
    """The reward component that says whether an answer is right; none where nothing is scored."""
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


def open_sampling(plan: SamplingPlan, note: Callable[[str], None]) -> SamplingSession:
    """Makes the session. Raises UserError, in one line, for whatever cannot work.

    What costs little is checked first, so that a typing error does not wait for a model.
    """
    config, plugins = plan.config, plan.plugins
    source = find_model(config, plugins)
    if plan.split == "val" and not has_validation_tasks(config, plugins):
        raise ConfigError(
            f"{plan.split_flag}environment {config.env.id} has no validation tasks of its own; "
            f"{plan.without_split}"
        )
    env = make_env(config, plugins, role=plan.split)
    evaluation = plan.scores_for == "evaluation"
    rewards, composer, accuracy = None, None, Accuracy()
    if plan.scores_for is not None:
        rewards = rewards_of(config, env)
        composer = RewardComposer(rewards, plugins, evaluation=evaluation)
        check_group_size(composer, plan.num_samples, flag=plan.samples_flag)
        accuracy = accuracy_of(env, rewards, plugins)
    policy, generator = open_model(config, source)
    with closed_on_error(generator):
        kind = "training" if plan.split == "train" else "validation"
        first = first_tasks(env, plan.max_tasks)
        tasks = fitting_tasks(config, first, generator, note, env=env, kind=kind)
        if rewards is not None:
            check_coverage(rewards, tasks, evaluation=evaluation)
        fixed = fixed_settings(
            config,
            plugins,
            policy=policy,
            tasks=tasks,
            num_samples=plan.num_samples,
            params=plan.params,
            rewards=rewards,
        )
    return SamplingSession(
        generator=generator,
        tasks=tasks,
        envs=EnvPool(lambda: env),
        composer=composer,
        accuracy=accuracy,
        params=plan.params,
        limits=episode_limits(config, policy),
        batching=turn_batching(config, generator),
        fixed=fixed,
    )
