"""Factories that the tests of the sandbox run inside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Items:
    """Goes through items, one deadline each; logs its close."""

    def __init__(self, argument: Any, take: Callable[[], None]) -> None:
        if argument == "fail":
            raise OSError("no model")
        if argument == "torch":
            import torch  # noqa: F401
        self.log = argument
        self.take = take

    def __call__(self, items: list[float]) -> int:
        for seconds in items:
            self.take()
            if seconds < 0:
                raise SystemExit("told so")
            time.sleep(seconds)
        return len(items)

    def close(self) -> None:
        Path(self.log).write_text("closed")


class Eater:
    def __init__(self, argument: str, take: Callable[[], None]) -> None:
        if argument == "torch":
            import torch  # noqa: F401

    def __call__(self, megabytes: int) -> int:
        eaten = bytearray(megabytes << 20)
        time.sleep(0.5)
        return len(eaten) >> 20


def no_function(argument: Any, take: Callable[[], None]) -> int:
    return 3


class Where:
    def __init__(self, argument: Any, take: Callable[[], None]) -> None: ...

    def __call__(self, argument: Any) -> str:
        return str(Path.cwd())


def never_ready(argument: Any, take: Callable[[], None]) -> None:
    time.sleep(600)


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class Unreadable(Where):
    def __call__(self, argument: Any) -> str:
        raise UnreadableError
