"""The real transitions of a Gymnasium vector environment, whatever it does after an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rlgym_llm.errors import UserError

__all__ = ["VectorStep", "info_of", "real_steps"]

Act = Callable[[Any, Mapping[str, Any]], Any]
"""Batched actions for batched observations and infos."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStep:
    """One transition that one environment of a vector really made."""

    env: int
    """Which environment of the vector."""
    row: int
    """Which call of the vector's ``step``, from 0."""
    observation: Any
    action: Any
    reward: float
    next_observation: Any
    """After the end of an episode its last observation, never the next episode's first."""
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)


def real_steps(
    vector_env: gymnasium.vector.VectorEnv[Any, Any, Any],
    act: Act,
    *,
    num_rows: int | None = None,
    seed: int | None = None,
) -> Iterator[VectorStep]:
    """Resets the vector and yields what its environments did, row by row, for ever or so long.

    By default (``NEXT_STEP``) Gymnasium spends a step on each reset: the action is ignored and the
    reward is 0, so that row is no transition and is left out. Under ``SAME_STEP`` the last
    observation and info stand in ``final_obs`` and ``final_info``; under ``DISABLED`` this resets
    what is over. Give it a vector that is new: Gymnasium 1.4.0's AsyncVectorEnv without shared
    memory, reset right after an episode's last step, resets again in the next step.

    Raises UserError for a vector that does not say which of the three it does.

    >>> class Count(gymnasium.Env):
    ...     observation_space = gymnasium.spaces.Discrete(3)
    ...     action_space = gymnasium.spaces.Discrete(1)
    ...     def reset(self, *, seed=None, options=None):
    ...         self.at = 0
    ...         return 0, {}
    ...     def step(self, action):
    ...         self.at += 1
    ...         return self.at, float(self.at == 2), self.at == 2, False, {}
    >>> vector = gymnasium.vector.SyncVectorEnv([Count])
    >>> [step.row for step in real_steps(vector, lambda *_: [0], num_rows=6)]
    [0, 1, 3, 4]
    """
    try:
        mode = AutoresetMode(vector_env.metadata.get("autoreset_mode"))
    except ValueError:
        raise UserError(
            f"{type(vector_env).__name__} does not tell its autoreset mode: its metadata needs "
            '"autoreset_mode", a gymnasium.vector.AutoresetMode'
        ) from None
    num_envs = vector_env.num_envs
    observations, infos = vector_env.reset(seed=seed)
    is_over = np.zeros(num_envs, dtype=np.bool_)
    row = 0
    while num_rows is None or row < num_rows:
        if mode is AutoresetMode.DISABLED and is_over.any():
            observations, infos = vector_env.reset(options={"reset_mask": is_over.copy()})
            is_over[:] = False
        actions = act(observations, infos)
        stepped = vector_env.step(actions)
        after, rewards, terminated, truncated, next_infos = stepped
        for env in range(num_envs):
            if is_over[env]:
                continue  # this row was the reset of that environment
            info = info_of(next_infos, env)
            has_restarted = mode is AutoresetMode.SAME_STEP and "final_obs" in info
            yield VectorStep(
                env=env,
                row=row,
                observation=observations[env],
                action=actions[env],
                reward=float(rewards[env]),
                next_observation=info["final_obs"] if has_restarted else after[env],
                terminated=bool(terminated[env]),
                truncated=bool(truncated[env]),
                info=info["final_info"] if has_restarted else info,
            )
        if mode is not AutoresetMode.SAME_STEP:
            is_over = np.logical_or(terminated, truncated)
        observations, infos = after, next_infos
        row += 1


def info_of(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    """One environment's info out of a vector's, where ``_key`` says who has ``key``.

    >>> info_of({"task_id": ["a", "b"], "_task_id": [True, False]}, 0)
    {'task_id': 'a'}
    """
    return {
        key: info_of(values, env) if isinstance(values, Mapping) else values[env]
        for key, values in infos.items()
        if f"_{key}" in infos and infos[f"_{key}"][env]
    }
