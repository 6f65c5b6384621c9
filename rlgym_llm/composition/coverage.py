"""Coverage: whether every task has a reward that judges it, asked before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.errors import DataError
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.types import Task

__all__ = ["check_coverage", "matches"]


def matches(when: Mapping[str, Any], columns: Mapping[str, Any]) -> bool:
    """Whether the columns hold what ``when`` asks for; a list stands for any of its values.

    >>> matches({"level": [1, 2]}, {"level": 2}), matches({"level": 1}, {})
    (True, False)
    """
    return all(
        columns.get(column) in (wanted if isinstance(wanted, list | tuple) else (wanted,))
        for column, wanted in when.items()
    )


def check_coverage(
    config: RewardsConfig, tasks: Iterable[Task], *, evaluation: bool = False
) -> None:
    """Raises DataError for the first task to which no weighted component applies.

    By the rows' columns alone: the ``when`` of a component, and the cases of a ``switch`` without a
    default. The message names the task, the column, its value and the values that are known. An
    ``evaluation`` goes by its own weights; where it weighs nothing, it asks for none.

    >>> section = {"components": {"math": {"when": {"data_source": ["gsm8k", "math"]}}}}
    >>> check_coverage(RewardsConfig.model_validate(section), [Task(prompt="?", id="17")])
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.DataError: task '17': no reward judges it: data_source is 'unknown', none of \
'gsm8k', 'math'
    """
    weighted = [
        component
        for component in config.components.values()
        if (component.weight_in(evaluation=True) if evaluation else component.weight)
    ]
    asked = [_asked(component) for component in weighted]
    if not all(asked) or (evaluation and not asked):
        return  # a component that asks nothing judges every task
    for task in tasks:
        columns = {**task.info, "data_source": task.data_source}
        if not any(matches(when, columns) for when in asked):
            raise DataError(f"task {task.id!r}: no reward judges it: {_why(asked, columns)}")


def _asked(component: ComponentConfig) -> Mapping[str, Any]:
    """The columns that a row must have for the component to judge it."""
    asked = dict(component.when)
    switch = component.combine.switch if component.combine is not None else None
    if switch is not None and switch.default is None:
        asked.setdefault(switch.on, list(switch.cases))
    return asked


def _why(asked: Iterable[Mapping[str, Any]], columns: Mapping[str, Any]) -> str:
    known: dict[str, dict[Any, None]] = {}
    for when in asked:
        for column, wanted in when.items():
            values = wanted if isinstance(wanted, list | tuple) else (wanted,)
            known.setdefault(column, {}).update(dict.fromkeys(map(repr, values)))
    return "; ".join(
        f"{column} is {columns.get(column)!r}, none of {', '.join(values)}"
        for column, values in known.items()
    )
