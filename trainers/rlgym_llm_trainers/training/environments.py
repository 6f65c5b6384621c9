"""The environments of a run: which tasks it trains and validates on. Imports no torch."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args, get_type_hints

from rlgym_llm.call_signature import check_arguments, named_parameters
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError, UserError, describe
from rlgym_llm.mixture import MemberSettings, Mixture, read_members, validates
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env, make
from rlgym_llm.single_turn import SingleTurnEnv
from rlgym_llm.types import Prompt, Task
from rlgym_llm_trainers.models.starter import STARTER, StarterKit, starter_kit

__all__ = [
    "Openings",
    "has_validation_tasks",
    "make_env",
    "starter_kit_of",
    "uses_starter_problems",
    "uses_starter_run",
]


class Openings:
    """What an environment opens the episode of a task with: the prompt, and the tools.

    An environment that adds to a task's prompt is asked, in an episode of a copy of its own.
    """

    def __init__(self, env: TextEnv | None) -> None:
        self._env = env
        self._copies: dict[str, TextEnv] = {}

    def __call__(self, task: Task) -> tuple[Prompt, Sequence[Mapping[str, Any]]]:
        """The opening prompt, and the JSON schemas of the tools."""
        env, alias = self._env, ""
        if isinstance(env, Mixture):
            alias = env.member_of(task)
            env = env.members[alias]
        if env is None:
            return task.prompt, ()
        if type(env).opening is TextEnv.opening:
            return task.prompt, env.tools
        if alias not in self._copies:
            self._copies[alias] = env.fresh()
        try:
            prompt, info = self._copies[alias].reset(seed=0, options={"task": task})
        except Exception:  # its episodes will fail, and be counted and told like any other
            return task.prompt, env.tools
        return prompt, info.get("tools", ())


def uses_starter_problems(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the run falls to the starter problems: neither a model nor data was named."""
    return _names_nothing(config) and _has_starter_problems(config.env.id, plugins)


def starter_kit_of(config: TrainConfig, plugins: Plugins) -> StarterKit:
    """The model, and the settings, of a run on this environment that names none."""
    return starter_kit(_starter_name(config, plugins))


def uses_starter_run(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the settings of the starter kit fit.

    They do where the environment names the kit. The others' are made for short questions, one turn.
    """
    if _starter_name(config, plugins) is not None:
        return _names_nothing(config)
    entry = plugins.load(find_env(config.env.id, plugins))
    is_single_turn = inspect.isclass(entry) and issubclass(entry, SingleTurnEnv)
    return is_single_turn and uses_starter_problems(config, plugins)


def make_env(config: TrainConfig, plugins: Plugins, *, role: Literal["train", "val"]) -> TextEnv:
    """The environment of the training or validation tasks, which leaves scoring to the loop.

    Environments that take them are given ``split`` (the role) and ``data``, and those that have
    starter problems take them where the run falls to those. Raises UserError where the environment
    is unknown, its arguments are wrong or its data cannot be read.
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
        kwargs["source"] = STARTER
    try:
        env: Any
        if _is_mixture(config, plugins):
            env = _mixture(config, plugins, kwargs)
        else:
            env = make(config.env.id, plugins=plugins, **kwargs).unwrapped
    except UserError:
        raise
    except Exception as error:  # a plugin's constructor raises what it likes
        reason = describe(error)
        raise ConfigError(f"--env.kwargs: {config.env.id} does not take them: {reason}") from error
    if not isinstance(env, TextEnv):
        raise ConfigError(f"--env {config.env.id}: {type(env).__name__} is no TextEnv")
    env.defer_scoring = True
    return env


def has_validation_tasks(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the environment tells validation tasks from training tasks."""
    if _is_mixture(config, plugins):
        members = read_members(config.env.kwargs.get("envs", {}))
        return any(validates(member, plugins) for member in members.values())
    return "split" in _parameters(config, plugins) or config.data.val is not None


def _names_nothing(config: TrainConfig) -> bool:
    """Whether neither a model nor data is named."""
    source = config.env.kwargs.get("source", STARTER)
    return not (config.model.path or config.data.train or source != STARTER)


def _starter_name(config: TrainConfig, plugins: Plugins) -> str | None:
    entry = plugins.load(find_env(config.env.id, plugins))
    return getattr(entry, "starter", None)


def _mixture(config: TrainConfig, plugins: Plugins, kwargs: Mapping[str, Any]) -> TextEnv:
    """The mixture; its members take starter problems where no model and no data is named."""
    spec = find_env(config.env.id, plugins)
    entry = plugins.load(spec)
    arguments: dict[str, Any] = {**spec.defaults, **kwargs}
    check_arguments(f"environment {spec.name!r}", entry, arguments)
    if config.model.path is None:
        arguments["envs"] = {
            alias: {**asdict(member), "kwargs": {**_starter(member, plugins), **member.kwargs}}
            for alias, member in read_members(arguments["envs"]).items()
        }
    env: TextEnv = entry(plugins=plugins, **arguments)
    return env


def _starter(member: MemberSettings, plugins: Plugins) -> dict[str, Any]:
    names_data = {"source", "data", "tasks"} & {*member.kwargs, *(member.val_kwargs or ())}
    has_problems = not names_data and _has_starter_problems(member.id, plugins)
    return {"source": STARTER} if has_problems else {}


def _is_mixture(config: TrainConfig, plugins: Plugins) -> bool:
    entry = plugins.load(find_env(config.env.id, plugins))
    return inspect.isclass(entry) and issubclass(entry, Mixture)


def _has_starter_problems(env_id: str, plugins: Plugins) -> bool:
    """Whether the constructor's ``source`` may be ``"starter"``, as its type says."""
    entry = plugins.load(find_env(env_id, plugins))
    makers = [vars(cls).get("__init__") for cls in entry.__mro__] if inspect.isclass(entry) else []
    for make_one in (*makers, entry):
        if "source" not in getattr(make_one, "__annotations__", {}):
            continue
        try:
            return STARTER in get_args(get_type_hints(make_one)["source"])
        except Exception:  # a type that is only known to type checkers
            return False
    return False


def _parameters(config: TrainConfig, plugins: Plugins) -> Mapping[str, inspect.Parameter]:
    """What the environment's constructor takes by name, its base classes included."""
    return named_parameters(plugins.load(find_env(config.env.id, plugins)))[0]
