"""Keeps environments from episode to episode, so that none is built twice."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import gymnasium

from rlgym_llm.env import TextEnv

__all__ = ["EnvPool", "MakeEnv"]

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
"""Makes an environment; a pool calls it once."""


class EnvPool:
    """Environments that are kept from episode to episode, for use from any thread.

    ``make_env`` is called once. Every further environment is `TextEnv.fresh`, or a deep copy that
    shares the tasks, so a data file is read once. A `TextEnv` from the pool defers scoring. Calling
    the pool acquires.
    """

    def __init__(self, make_env: MakeEnv) -> None:
        self._make_env = make_env
        self._lock = threading.Lock()
        self._prototype: gymnasium.Env[Any, Any] | None = None
        self._idle: list[gymnasium.Env[Any, Any]] = []

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """The same as `acquire`."""
        return self.acquire()

    def prepare(self) -> gymnasium.Env[Any, Any]:
        """Makes the environment that the others are copied from, and returns it: not to be used."""
        with self._lock:
            if self._prototype is None:
                self._prototype = self._make_env()
            return self._prototype

    def acquire(self) -> gymnasium.Env[Any, Any]:
        """An idle environment, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        env = _copy(self.prepare())
        if isinstance(env.unwrapped, TextEnv):
            env.unwrapped.defer_scoring = True
        return env

    def release(self, env: gymnasium.Env[Any, Any]) -> None:
        """Takes an environment back; one that failed is not given back but dropped."""
        with self._lock:
            self._idle.append(env)

    def close(self) -> None:
        """Closes the idle environments and the one they were copied from; safe to call twice."""
        with self._lock:
            idle, self._idle = self._idle, []
            prototype, self._prototype = self._prototype, None
        for env in idle:
            env.close()
        if prototype is not None:
            prototype.close()


def _copy(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    if isinstance(env, TextEnv):
        return env.fresh()
    tasks = getattr(env.unwrapped, "tasks", None)
    return copy.deepcopy(env, {id(tasks): tasks})
