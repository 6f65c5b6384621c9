"""Numbers on the command line, as argparse's types: what is too small is told with the flag."""

from __future__ import annotations

import argparse

__all__ = ["at_least_0", "at_least_1", "rising", "seconds"]


def at_least_0(text: str) -> int:
    """A whole number from 0 on."""
    return _from(0, text)


def at_least_1(text: str) -> int:
    """A whole number from 1 on.

    >>> at_least_1("0")
    Traceback (most recent call last):
        ...
    argparse.ArgumentTypeError: must be at least 1, got 0
    """
    return _from(1, text)


def rising(text: str) -> tuple[int, ...]:
    """Whole numbers from 1 on, each once, in their order.

    >>> rising("8,1,8")
    (1, 8)
    """
    return tuple(sorted({at_least_1(part) for part in text.split(",")}))


def seconds(text: str) -> float:
    """A time above 0 and up to a million seconds."""
    number = float(text)
    if not 0 < number <= 1e6:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1e6, got {text}")
    return number


def _from(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
    return number


# argparse names the type in its errors
at_least_0.__name__ = at_least_1.__name__ = seconds.__name__ = "number"
rising.__name__ = "list of numbers"
