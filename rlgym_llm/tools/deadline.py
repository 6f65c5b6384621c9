"""Calls a function within a deadline that is kept, in a thread that is given up beyond it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rlgym_llm.errors import ToolError
from rlgym_llm.hung_threads import MOST_HUNG

__all__ = ["call_within"]

_hung: set[threading.Thread] = set()


def call_within(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    timeout_s: float | None,
    name: str,
) -> Any:
    """What the function returns; a coroutine is awaited in a loop of its own.

    What it raises passes. TimeoutError beyond the deadline, ToolError where so many calls hang.

    >>> call_within(lambda a: a + 1, {"a": 2}, 1.0, "inc")
    3
    """
    if timeout_s is None and not _is_async(function):
        return function(**arguments)
    _hung.difference_update([thread for thread in tuple(_hung) if not thread.is_alive()])
    if len(_hung) >= MOST_HUNG:
        raise ToolError(
            f"tool {name!r} is not called: {MOST_HUNG} calls hang in threads, which nothing can "
            "stop; declare tools that may hang isolated=True"
        )
    outcome: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            value = function(**arguments)
            outcome.append((asyncio.run(value) if inspect.iscoroutine(value) else value, None))
        except BaseException as error:  # the caller gets it, whatever it is
            outcome.append((None, error))

    thread = threading.Thread(target=work, name=f"rlgym-tool-{name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        _hung.add(thread)
        raise TimeoutError(f"no result within {timeout_s:g} s")
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether it is to be awaited; an object with an async ``__call__`` is, too."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
