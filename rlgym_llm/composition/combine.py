"""Combinations: a component that is made of others rather than scored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, FiniteFloat, model_validator

from rlgym_llm.composition.section import Section

__all__ = ["Combine", "Switch", "combined"]


class Switch(Section):
    """Takes one component by the value of a column: ``math`` rows by one, ``code`` by another."""

    on: str
    """Column of the task, such as ``data_source``."""
    cases: Mapping[str, str] = Field(min_length=1)
    """Value of the column, as text, to component."""
    default: str | None = None
    """Component for every other value; None means that it does not apply."""

    def choose(self, value: Any) -> str | None:
        """The component for that value of the column."""
        return self.cases.get(str(value), self.default)


class Combine(Section):
    """Exactly one way to make a value out of other components' transformed and gated values.

    >>> Combine(product=("correct", "format")).operands
    ('correct', 'format')
    """

    sum: Mapping[str, FiniteFloat] | None = Field(default=None, min_length=1)
    """Component to factor: ``sum_i c_i v_i``."""
    product: tuple[str, ...] | None = Field(default=None, min_length=1)
    min: tuple[str, ...] | None = Field(default=None, min_length=1)
    max: tuple[str, ...] | None = Field(default=None, min_length=1)
    switch: Switch | None = None

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"combine takes exactly one of {known}, got {given or 'none'}")
        return self

    @property
    def operands(self) -> tuple[str, ...]:
        """The components that it may read, each once, in order."""
        if self.switch is not None:
            default = () if self.switch.default is None else (self.switch.default,)
            return tuple(dict.fromkeys((*self.switch.cases.values(), *default)))
        return tuple(dict.fromkeys(self.sum or self.product or self.min or self.max or ()))


def combined(combine: Combine, values: Mapping[str, float | None]) -> float | None:
    """The combination's raw value; None where it does not apply.

    ``values`` holds those operands that count (of a switch, the chosen one). An operand of None
    drops out of sum, min and max, as it does from the whole reward; a product with one is None.

    >>> combined(Combine(product=("a", "b")), {"a": 0.5, "b": 0.5})
    0.25
    >>> combined(Combine(min=("a", "b")), {"a": 0.5, "b": None})
    0.5
    """
    found = {name: value for name, value in values.items() if value is not None}
    if combine.product is not None and len(found) < len(values):
        return None
    if not found:
        return None
    if combine.sum is not None:
        return math.fsum(combine.sum[name] * value for name, value in found.items())
    if combine.product is not None:
        return math.prod(found[name] for name in combine.product)
    if combine.min is not None:
        return min(found.values())
    return max(found.values())  # of a switch there is only one
