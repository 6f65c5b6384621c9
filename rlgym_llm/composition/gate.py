"""Gates: a component counts only where another one's raw score passes a test."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import FiniteFloat

from rlgym_llm.composition.section import Section

__all__ = ["Gate"]

Comparison = Literal[">=", ">", "<=", "<", "==", "!="]

_COMPARE: Mapping[Comparison, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


class Gate(Section):
    """``[s_on op value]``: 1 where the gate is open, 0 where it is closed.

    >>> Gate(on="correct", op=">=", value=1.0).is_open(0.5)
    False
    """

    on: str
    """The component whose raw score decides."""
    op: Comparison = ">="
    value: FiniteFloat = 1.0

    def is_open(self, score: float | None) -> bool:
        """Whether that raw score passes; where there is none, the gate is closed."""
        return score is not None and _COMPARE[self.op](score, self.value)
