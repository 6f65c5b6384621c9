"""Ends a future whoever waits for it may have cancelled."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

__all__ = ["settle"]

T = TypeVar("T")


def settle(future: Future[T], outcome: T | Exception) -> None:
    """Gives the future a result, or raises the exception in it; once: what comes later is dropped.

    >>> future = Future()
    >>> settle(future, 5)
    >>> settle(future, ValueError("too late"))
    >>> future.result()
    5
    """
    with contextlib.suppress(InvalidStateError):  # settled or cancelled meanwhile
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
