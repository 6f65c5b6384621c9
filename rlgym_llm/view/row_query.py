"""Which rows are wanted, and in what order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.errors import UnknownNameError, UserError
from rlgym_llm.view.row_index import STATUSES

__all__ = ["FAILED_COMPONENT", "RowQuery", "holds_text", "select"]

FAILED_COMPONENT: Final = "failed_component"
"""Chosen like a status: a component failed, whatever became of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery:
    """What a row must be; None asks for nothing. Ranges include both ends."""

    min_reward: float | None = None
    max_reward: float | None = None
    component: str | None = None
    min_value: float | None = None
    """Of the component's raw score."""
    max_value: float | None = None
    status: str | None = None
    text: str | None = None
    """Somewhere in the row, whatever its case."""
    sort: str = "row"
    """``row``, ``reward``, ``chars`` or ``value`` (the component's); ``-`` before it: downwards."""

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        """The query of a form's fields; blank ones ask for nothing. Raises UserError.

        >>> RowQuery.parse({"min_reward": "0.5", "status": ""}).min_reward
        0.5
        """
        given = {key: value.strip() for key, value in fields.items() if value.strip()}
        known = {field: given.pop(field) for field in cls.__slots__ if field in given}
        if given:
            raise UnknownNameError("filter", min(given), cls.__slots__)
        values: dict[str, Any] = {
            key: _number(key, text) if key.startswith(("min_", "max_")) else text
            for key, text in known.items()
        }
        query = cls(**values)
        if query.sort.removeprefix("-") not in ("row", "reward", "chars", "value"):
            raise UserError(f"cannot sort by {query.sort!r}: take row, reward, chars or value")
        if query.status not in (None, FAILED_COMPONENT, *STATUSES):
            raise UnknownNameError("status", str(query.status), (FAILED_COMPONENT, *STATUSES))
        return query


def select(records: NDArray[Any], query: RowQuery, components: Sequence[str]) -> NDArray[np.int64]:
    """The numbers of the rows that fit, in order; the text is not looked at.

    Rows without the value that is sorted by come last, and equal ones stay in the order of the
    file. Raises UnknownNameError for an unknown component.
    """
    fits = np.ones(len(records), bool)
    _within(fits, records["reward"], query.min_reward, query.max_reward)
    values = None
    if query.component is not None:
        if query.component not in components:
            raise UnknownNameError("component", query.component, components)
        values = records["raw"][:, list(components).index(query.component)]
        _within(fits, values, query.min_value, query.max_value)
    if query.status == FAILED_COMPONENT:
        fits &= records["has_failed"] == 1
    elif query.status is not None:
        fits &= records["status"] == STATUSES.index(query.status)
    rows = np.flatnonzero(fits)
    key = query.sort.removeprefix("-")
    sign = -1.0 if query.sort.startswith("-") else 1.0
    if key == "row":
        return rows if sign > 0 else rows[::-1]
    by = values if key == "value" else records[key]
    if by is None:
        return rows
    return np.asarray(rows[np.argsort(sign * by[rows].astype(np.float64), kind="stable")])


def holds_text(value: Any, text: str) -> bool:
    """Whether a text stands somewhere in the row, whatever its case; keys are not looked at.

    >>> holds_text({"completion": ["So it is FIVE."]}, "five"), holds_text({"five": "5"}, "five")
    (True, False)
    """
    wanted = text.casefold()

    def found(item: Any) -> bool:
        if isinstance(item, str):
            return wanted in item.casefold()
        if isinstance(item, Mapping):
            return any(map(found, item.values()))
        return isinstance(item, list) and any(map(found, item))

    return found(value)


def _within(
    fits: NDArray[np.bool_], values: NDArray[np.float64], low: float | None, high: float | None
) -> None:
    if low is not None:
        fits &= values >= low
    if high is not None:
        fits &= values <= high


def _number(field: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UserError(f"{field} is no number: {text!r}")
    return value
