"""Numbers as a function or a server returns them: taken for what they are, and never guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from numbers import Real
from typing import Any

__all__ = ["returned_number", "returned_numbers", "returned_sequence"]


def returned_number(value: Any) -> float:
    """The number that was returned: a float, an int, a bool, or an array's scalar.

    >>> returned_number(1), returned_number(True)
    (1.0, 1.0)
    >>> returned_number("1")
    Traceback (most recent call last):
        ...
    TypeError: '1' is a str, no number
    """
    if not isinstance(value, Real) and hasattr(value, "item"):
        value = value.item()  # an array of several raises ValueError here
    if not isinstance(value, Real):
        raise TypeError(f"{_shown(value)} is a {type(value).__name__}, no number")
    return float(value)


def returned_numbers(values: Any) -> list[float]:
    """The numbers that were returned in order: a list, a tuple, an array, or a generator.

    A dictionary or a set has no order of its own to go by, and a text is no list of numbers.

    >>> returned_numbers([0.5, 1])
    [0.5, 1.0]
    >>> returned_numbers({0.5: "a"})
    Traceback (most recent call last):
        ...
    TypeError: {0.5: 'a'} is a dict, no list of numbers
    """
    return [returned_number(value) for value in returned_sequence(values, "numbers")]


def returned_sequence(values: Any, what: str) -> list[Any]:
    """The elements of whatever has an order; raises TypeError for all else, naming ``what``."""
    if isinstance(values, Mapping | Set | str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{_shown(values)} is a {type(values).__name__}, no list of {what}")
    return list(values)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
