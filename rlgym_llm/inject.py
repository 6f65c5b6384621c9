"""Call a function with the columns that its parameters name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlgym_llm.errors import ConfigError, PluginError, did_you_mean
from rlgym_llm.types import Rollout, RolloutGroup, Task

__all__ = ["Injection", "batch_columns", "group_columns", "prompt_text", "sample_columns"]


def prompt_text(task: Task) -> str:
    """The prompt as one string; the contents of a conversation are joined by newlines."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(message.content for message in task.prompt)


def sample_columns(rollout: Rollout) -> dict[str, Any]:
    """What a function may ask for of one rollout; an answer of None is absent, not a column.

    The columns of ``task.info`` come under their own names, but never in place of ours.
    """
    task = rollout.task
    columns: dict[str, Any] = dict(task.info)
    columns.pop("answer", None)
    columns.update(
        completion=rollout.text,
        prompt=prompt_text(task),
        info=task.info,
        data_source=task.data_source,
        rollout=rollout,
    )
    if task.answer is not None:
        columns["answer"] = task.answer
    return columns


def batch_columns(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """What a function of scope ``batch`` may ask for: lists over the rollouts, all aligned."""
    return {
        "rollouts": list(rollouts),
        "completions": [rollout.text for rollout in rollouts],
        "prompts": [prompt_text(rollout.task) for rollout in rollouts],
        "answers": [rollout.task.answer for rollout in rollouts],
        "group_ids": [rollout.group_id for rollout in rollouts],
    }


def group_columns(group: RolloutGroup) -> dict[str, Any]:
    """What a function of scope ``group`` may ask for: the group, and lists over its siblings."""
    return {"group": group, **batch_columns(group.rollouts)}


_NAMES: Mapping[str, tuple[str, ...]] = {
    "sample": ("completion", "prompt", "answer", "info", "data_source", "rollout"),
    "group": ("group", "rollouts", "completions", "prompts", "answers", "group_ids"),
    "batch": ("rollouts", "completions", "prompts", "answers", "group_ids"),
}
"""Columns that are there of whatever task."""

_COLUMNS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "sample": sample_columns,
    "group": group_columns,
    "batch": batch_columns,
}


class Injection:
    """The plan by which one function gets its arguments, made once from its signature.

    Raises PluginError for signatures that cannot be called by name, and ConfigError for options
    that the function does not take or that would hide a column of ours.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], scope: str, options: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._columns: Callable[[Any], dict[str, Any]] = _COLUMNS.get(scope, sample_columns)
        self._options = dict(options)
        if not callable(function):
            raise PluginError(f"reward {name!r} is a {type(function).__name__}, no function")
        self.is_async = inspect.iscoroutinefunction(function)
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise PluginError(
                    f"reward {name!r}: parameter {parameter.name!r} is positional; "
                    "arguments are injected by name"
                )
        self._takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
        # Options are bound once and for all; only the other parameters are looked up per call.
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        self._wanted = [(p.name, p.default is p.empty) for p in named if p.name not in options]
        known = [p.name for p in named]
        self._takes_components = "components" in known
        for option in options:
            if option in (*_NAMES.get(scope, ()), "components"):
                raise ConfigError(
                    f"reward {name!r}: option {option!r} would hide the column {option!r}, which "
                    "comes from what is scored: drop it, or call the parameter otherwise"
                )
            if option not in known and not self._takes_rest:
                hint = did_you_mean(option, known)
                raise ConfigError(
                    f"reward {name!r} has no option {option!r}{hint} "
                    f"(parameters: {', '.join(known) or 'none'})"
                )

    def call(
        self, row: Rollout | RolloutGroup | Sequence[Rollout], components: Mapping[str, Any]
    ) -> Any:
        """The function's value; LookupError where a parameter without default has no column.

        ``components`` reaches a function that names it as a parameter, and no ``**columns``.
        """
        columns = self._columns(row)
        if self._takes_components:
            columns["components"] = components
        arguments = {**(columns if self._takes_rest else {}), **self._options}
        for parameter, is_required in self._wanted:
            if parameter in columns:
                arguments[parameter] = columns[parameter]
            elif is_required:
                raise LookupError(
                    f"parameter {parameter!r} has no default and no column provides it"
                    f"{did_you_mean(parameter, columns)} "
                    f"(available: {', '.join(sorted(columns))})"
                )
        return self._function(**arguments)
