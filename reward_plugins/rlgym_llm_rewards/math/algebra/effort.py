"""A budget of work for one verdict, counted rather than timed: the same text, the same verdict."""

from __future__ import annotations

import threading

__all__ = ["MAX_EFFORT", "EffortError", "begin", "left", "spend"]

MAX_EFFORT = 50_000
"""Products of terms, or as costly steps, in one verdict: about half a second of one core."""


class EffortError(ValueError):
    """The verdict would take more work than any answer that people give."""


_local = threading.local()


def begin() -> None:
    """Starts the budget of a verdict, in this thread."""
    _local.left = MAX_EFFORT


def left() -> int:
    """What is left of the budget, in this thread."""
    return int(getattr(_local, "left", MAX_EFFORT))


def spend(amount: int) -> None:
    """Takes from the budget; raises EffortError where nothing is left."""
    _local.left = left() - amount
    if _local.left < 0:
        raise EffortError("the comparison would take too much work")
