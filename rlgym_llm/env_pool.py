"""Keeps environments from episode to episode, so that none is built twice."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium

from rlgym_llm.env import TextEnv

__all__ = ["EnvPool", "MakeEnv"]

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
"""Makes an environment; a pool calls it once."""


class EnvPool:
    """Environments that are kept from episode to episode.

    ``make_env`` is called once; every further environment is a deep copy that shares the tasks, so
    a data file is read once. A `TextEnv` from the pool defers scoring. Calling the pool acquires.
    """

    def __init__(self, make_env: MakeEnv) -> None:
        self._make_env = make_env
        self._prototype: gymnasium.Env[Any, Any] | None = None
        self._idle: list[gymnasium.Env[Any, Any]] = []

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """The same as `acquire`."""
        return self.acquire()

    def acquire(self) -> gymnasium.Env[Any, Any]:
        """An idle environment, or a new one."""
        if self._idle:
            return self._idle.pop()
        if self._prototype is None:
            self._prototype = self._make_env()
        tasks = getattr(self._prototype.unwrapped, "tasks", None)
        env = copy.deepcopy(self._prototype, {id(tasks): tasks})
        if isinstance(env.unwrapped, TextEnv):
            env.unwrapped.defer_scoring = True
        return env

    def release(self, env: gymnasium.Env[Any, Any]) -> None:
        """Takes an environment back; one that failed is not given back but dropped."""
        self._idle.append(env)

    def close(self) -> None:
        """Closes the idle environments and the one they were copied from; safe to call twice."""
        while self._idle:
            self._idle.pop().close()
        if self._prototype is not None:
            self._prototype.close()
            self._prototype = None
