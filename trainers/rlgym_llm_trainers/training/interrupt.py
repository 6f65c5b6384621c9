"""Ctrl-C ends a run between two steps, or two batches, never inside one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Interrupt", "StepInterruptedError", "catch_interrupt"]


class StepInterruptedError(Exception):
    """A step that could have gone on for long was left, because the run was asked to end."""


@dataclass(slots=True)
class Interrupt:
    """Whether the run was asked to end."""

    is_set: bool = False


@contextmanager
def catch_interrupt(
    notice: str = "ending after this step, saving what was learned",
) -> Iterator[Interrupt]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a flag; the second raises KeyboardInterrupt.

    ``notice`` is what the first one says on stderr. Outside the main thread, where signals cannot
    be caught, the flag is simply never set.
    """
    interrupt = Interrupt()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if interrupt.is_set:
            raise KeyboardInterrupt
        interrupt.is_set = True
        # Not print: a handler may run in the middle of another print.
        os.write(2, f"{notice}; once more to stop at once\n".encode())

    previous = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            previous[number] = signal.signal(number, on_signal)
    except ValueError:
        pass
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
