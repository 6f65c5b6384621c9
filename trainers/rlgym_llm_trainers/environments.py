"""The environments of a run: which tasks it trains and validates on. Imports no torch."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, Literal

from rlgym_llm.call_signature import named_parameters
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env, make

__all__ = ["has_validation_tasks", "make_env", "uses_starter_problems"]


def uses_starter_problems(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the run falls to the starter problems: neither a model nor data was named."""
    source = config.env.kwargs.get("source", "starter")
    is_named = config.model.path or config.data.train or source != "starter"
    return not is_named and "source" in _parameters(config, plugins)


def make_env(config: TrainConfig, plugins: Plugins, *, role: Literal["train", "val"]) -> TextEnv:
    """The environment of the training or validation tasks, which leaves scoring to the loop.

    Environments that take them are given ``split`` (the role), ``data`` and ``source``. Raises
    UserError where the environment is unknown, its arguments are wrong or its data cannot be read.
    """
    accepted = _parameters(config, plugins)
    kwargs: dict[str, Any] = dict(config.env.kwargs)
    for name in ("split", "data"):
        if name in kwargs and name in accepted:
            raise ConfigError(
                f"--env.kwargs.{name}: training and validation tasks are told apart by "
                "--data.train and --data.val"
            )
    if "split" in accepted:
        kwargs["split"] = role
    data = config.data.train if role == "train" else config.data.val
    if data is not None:
        if "data" not in accepted:
            raise ConfigError(f"--data.{role}: environment {config.env.id!r} reads no data file")
        kwargs["data"] = os.path.expanduser(data)
    elif uses_starter_problems(config, plugins):
        kwargs["source"] = "starter"
    try:
        env = make(config.env.id, plugins=plugins, **kwargs).unwrapped
    except UserError:
        raise
    except Exception as error:  # a plugin's constructor raises what it likes
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(f"--env.kwargs: {config.env.id} does not take them: {reason}") from error
    if not isinstance(env, TextEnv):
        raise ConfigError(f"--env {config.env.id}: {type(env).__name__} is no TextEnv")
    env.defer_scoring = True
    return env


def has_validation_tasks(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the environment tells validation tasks from training tasks."""
    return "split" in _parameters(config, plugins) or config.data.val is not None


def _parameters(config: TrainConfig, plugins: Plugins) -> Mapping[str, inspect.Parameter]:
    """What the environment's constructor takes by name, its base classes included."""
    return named_parameters(plugins.load(find_env(config.env.id, plugins)))[0]
