"""An evaluation put together from its settings: model, environment, tasks, rewards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.generate import Generator, SamplingParams
from rlgym_llm.registry import find_env
from rlgym_llm.reward_config import build_rewards
from rlgym_llm.rollout import EpisodeLimits
from rlgym_llm.types import Task
from rlgym_llm_trainers.environments import make_env
from rlgym_llm_trainers.eval_settings import EvalSettings
from rlgym_llm_trainers.model import Policy, weights_digest
from rlgym_llm_trainers.preparation import (
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

    policy: Policy
    generator: Generator
    tasks: tuple[Task, ...]
    """Those whose prompt fits ``data.max_prompt_length``."""
    envs: EnvPool
    composer: RewardComposer
    accuracy: Accuracy
    """The reward component that says whether an answer is right."""
    params: SamplingParams
    limits: EpisodeLimits
    batching: Batching
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
    tasks = validation_tasks(config, env, generator, note)
    budgets = {
        name: value
        for name in ("max_turns", "max_seconds")
        if (value := getattr(config.rollout, name)) is not None
    }
    fixed = {
        "env": {"id": find_env(config.env.id, plugins).id, "kwargs": dict(config.env.kwargs)},
        "model": {
            "path": config.model.path or "starter",
            "dtype": config.model.dtype,
            "weights": weights_digest(policy),
        },
        "tasks": {"count": len(tasks), "ids": _digest(task.id for task in tasks)},
        "rollout": {"name": config.rollout.name, "n": settings.num_samples, **budgets},
        "sampling": {
            "temperature": config.rollout.val_kwargs.temperature,
            "top_p": config.rollout.val_kwargs.top_p,
            "top_k": config.rollout.val_kwargs.top_k,
            "max_prompt_length": config.data.max_prompt_length,
            "max_response_length": config.data.max_response_length,
        },
        "seed": config.trainer.seed,
        "rewards": rewards.model_dump(mode="json", exclude_defaults=True),
        "reward_versions": {n: r.version for n, r in build_rewards(rewards, plugins).items()},
    }
    return EvalSession(
        policy=policy,
        generator=generator,
        tasks=tasks,
        envs=EnvPool(lambda: env),
        composer=composer,
        accuracy=accuracy_of(env, rewards, plugins),
        params=validation_params(config),
        limits=episode_limits(config, policy),
        batching=turn_batching(config),
        fixed=fixed,
    )


def _digest(texts: Any) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()[:16]
