"""What stored rollouts and their scores depend on: under other settings none are added to them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env
from rlgym_llm.reward_config import RewardsConfig, build_rewards
from rlgym_llm.types import Task
from rlgym_llm_trainers.models.policy import Policy, weights_digest
from rlgym_llm_trainers.models.starter import STARTER
from rlgym_llm_trainers.models.token_side import TokenSide

__all__ = ["fixed_settings"]


def fixed_settings(
    config: TrainConfig,
    plugins: Plugins,
    *,
    policy: Policy | TokenSide,
    tasks: Sequence[Task],
    num_samples: int,
    params: SamplingParams,
    rewards: RewardsConfig | None,
) -> dict[str, Any]:
    """The settings of ``num_samples`` rollouts a task; ``rewards`` is None where none is scored."""
    budgets = {
        name: value
        for name in ("max_turns", "max_seconds")
        if (value := getattr(config.rollout, name)) is not None
    }
    stops = {
        name: list(value) for name in ("stop", "stop_token_ids") if (value := getattr(params, name))
    }
    versions = None
    if rewards is not None:
        versions = {n: reward.version for n, reward in build_rewards(rewards, plugins).items()}
    return {
        "env": {"id": find_env(config.env.id, plugins).id, "kwargs": dict(config.env.kwargs)},
        "model": {
            "path": config.model.path or STARTER,
            "dtype": config.model.dtype,
            "weights": _weights(config, policy),
        },
        "tasks": {"count": len(tasks), "ids": _digest(tasks)},
        "rollout": {"name": config.rollout.name, "n": num_samples, **budgets},
        "sampling": {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            **stops,
            "max_prompt_length": config.data.max_prompt_length,
            "max_response_length": config.data.max_response_length,
        },
        "seed": config.trainer.seed,
        "rewards": rewards and rewards.model_dump(mode="json", exclude_defaults=True),
        "reward_versions": versions,
    }


def _weights(config: TrainConfig, policy: Policy | TokenSide) -> str:
    """What tells the weights apart: their digest, or the server that has them."""
    if isinstance(policy, Policy):
        return weights_digest(policy)
    server = config.rollout.server
    return f"{server.base_url} {server.model or ''}".strip()


def _digest(tasks: Sequence[Task]) -> str:
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(f"{task.id}\n".encode())
    return digest.hexdigest()[:16]
