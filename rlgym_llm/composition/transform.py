"""Transforms of one raw score, before its weight: clip, scale, shift and their like."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlgym_llm.errors import ConfigError, did_you_mean

__all__ = ["TRANSFORMS", "compile_transforms"]


def _clip(bounds: Any) -> Callable[[float], float]:
    low, high = _numbers("clip", bounds, 2)
    if low > high:
        raise ConfigError(f"transform clip {bounds} is empty: the lower bound comes first")
    return lambda value: min(max(value, low), high)


def _scale(factor: Any) -> Callable[[float], float]:
    (by,) = _numbers("scale", [factor], 1)
    return lambda value: value * by


def _shift(amount: Any) -> Callable[[float], float]:
    (by,) = _numbers("shift", [amount], 1)
    return lambda value: value + by


def _threshold(border: Any) -> Callable[[float], float]:
    (at,) = _numbers("threshold", [border], 1)
    return lambda value: float(value >= at)


def _tanh(width: Any) -> Callable[[float], float]:
    (scale,) = _positive("tanh", width)
    return lambda value: math.tanh(value / scale)


def _sigmoid(width: Any) -> Callable[[float], float]:
    (scale,) = _positive("sigmoid", width)
    # By tanh, which cannot overflow where exp does.
    return lambda value: 0.5 * (1.0 + math.tanh(0.5 * value / scale))


def _log1p(width: Any) -> Callable[[float], float]:
    (scale,) = _positive("log1p", width)
    return lambda value: math.copysign(math.log1p(abs(value) / scale), value)


TRANSFORMS: Mapping[str, Callable[[Any], Callable[[float], float]]] = {
    "clip": _clip,
    "scale": _scale,
    "shift": _shift,
    "threshold": _threshold,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "log1p": _log1p,
}
"""By name, of a score s: ``clip [low, high]``, ``scale c`` (c s), ``shift c`` (s + c),
``threshold c`` ([s >= c]), ``tanh c`` (tanh(s / c)), ``sigmoid c`` (1 / (1 + exp(-s / c))),
``log1p c`` (sign(s) ln(1 + |s| / c))."""


def compile_transforms(steps: Sequence[Mapping[str, Any]]) -> Callable[[float], float] | None:
    """One function that applies the steps in order; None where there are none.

    Raises ConfigError for a step that is no ``{name: argument}`` with a known name.

    >>> compile_transforms([{"scale": -0.01}, {"clip": [-1, 0]}])(250.0)
    -1.0
    """
    if not steps:
        return None
    functions = [_compile(step) for step in steps]
    if len(functions) == 1:
        return functions[0]

    def apply(value: float) -> float:
        for function in functions:
            value = function(value)
        return value

    return apply


def _compile(step: Mapping[str, Any]) -> Callable[[float], float]:
    if not isinstance(step, Mapping) or len(step) != 1:
        raise ConfigError(
            f"transform {step!r} is no single {{name: argument}}, as {{clip: [0, 1]}}"
        )
    ((name, argument),) = step.items()
    if name not in TRANSFORMS:
        hint = did_you_mean(str(name), TRANSFORMS)
        raise ConfigError(f"unknown transform {name!r}{hint} (known: {', '.join(TRANSFORMS)})")
    return TRANSFORMS[name](argument)


def _numbers(name: str, given: Any, count: int) -> tuple[float, ...]:
    numbers = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    sound = (
        isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in numbers
    )
    if len(numbers) != count or not all(sound):
        wanted = "one finite number" if count == 1 else f"{count} finite numbers"
        shown = given[0] if count == 1 and numbers else given
        raise ConfigError(f"transform {name} takes {wanted}, got {shown!r}")
    return tuple(map(float, numbers))


def _positive(name: str, given: Any) -> tuple[float]:
    (number,) = _numbers(name, [given], 1)
    if number <= 0:
        raise ConfigError(f"transform {name} takes a number above 0, got {given!r}")
    return (number,)
