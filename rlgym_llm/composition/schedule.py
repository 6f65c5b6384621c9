"""Schedules: by how much a weight is multiplied at a training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlgym_llm.errors import ConfigError, did_you_mean

__all__ = ["compile_schedule"]

_SCHEDULES = ("linear", "cosine", "steps")


def compile_schedule(schedule: Mapping[str, Any]) -> Callable[[int], float]:
    """The factor of a weight as a function of the training step, from 0.

    - ``{linear: [start, end, num_steps]}``: in a straight line, then ``end`` for good.
    - ``{cosine: [start, end, num_steps]}``: half a cosine, then ``end`` for good.
    - ``{steps: {0: 1.0, 1000: 0.5}}``: each value from its step on; 1.0 before the first.

    Raises ConfigError for anything else.

    >>> factor = compile_schedule({"linear": [1.0, 0.0, 2000]})
    >>> factor(0), factor(500), factor(9000)
    (1.0, 0.75, 0.0)
    """
    if not isinstance(schedule, Mapping) or len(schedule) != 1:
        raise ConfigError(f"schedule {schedule!r} is no single {{name: argument}}")
    ((name, argument),) = schedule.items()
    if name not in _SCHEDULES:
        hint = did_you_mean(str(name), _SCHEDULES)
        raise ConfigError(f"unknown schedule {name!r}{hint} (known: {', '.join(_SCHEDULES)})")
    return _steps(argument) if name == "steps" else _ramp(name, argument)


def _ramp(name: str, argument: Any) -> Callable[[int], float]:
    if not (
        isinstance(argument, Sequence)
        and len(argument) == 3
        and all(map(_is_number, argument))
        and argument[2] >= 1
        and argument[2] == int(argument[2])
    ):
        raise ConfigError(
            f"schedule {name} takes [start, end, num_steps], a whole number of at least 1 step, "
            f"got {argument!r}"
        )
    start, end, num_steps = map(float, argument)

    def factor(step: int) -> float:
        progress = min(max(step / num_steps, 0.0), 1.0)
        if progress == 1.0:
            return end
        if name == "cosine":
            progress = 0.5 * (1.0 - math.cos(math.pi * progress))
        return start + (end - start) * progress

    return factor


def _steps(argument: Any) -> Callable[[int], float]:
    if not (isinstance(argument, Mapping) and argument and all(map(_is_number, argument.values()))):
        raise ConfigError(f"schedule steps takes {{step: factor}}, got {argument!r}")
    try:
        points = sorted((int(step), float(value)) for step, value in argument.items())
    except (TypeError, ValueError):
        raise ConfigError(f"schedule steps takes whole steps, got {list(argument)}") from None
    if points[0][0] < 0:
        raise ConfigError(f"schedule steps takes steps from 0, got {points[0][0]}")

    def factor(step: int) -> float:
        return next((value for start, value in reversed(points) if step >= start), 1.0)

    return factor


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
