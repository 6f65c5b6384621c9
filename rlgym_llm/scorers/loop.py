"""An event loop in a thread of its own, which rewards cannot end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

__all__ = ["LoopThread"]

_Ended = Callable[[asyncio.Task[None]], None]


class LoopThread:
    """An event loop in a daemon thread, and the slots of the calls on it.

    It goes on where what runs there stops it, or raises SystemExit out of a task.
    """

    def __init__(self, concurrency: int) -> None:
        self.pid = os.getpid()
        self.slots = asyncio.Semaphore(concurrency)
        self.is_abandoned = False
        """Whether it hangs and nobody waits for it any more."""
        self.is_stopped = False
        """Whether `stop` was called."""
        self._is_ending = False
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself does not keep them
        self._thread = threading.Thread(target=self._serve, name="rlgym-reward", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def is_alive(self) -> bool:
        """Whether anything can still come of what was started there."""
        return self._thread.is_alive()

    def start(self, works: Iterable[Coroutine[Any, Any, None]], ended: _Ended) -> None:
        """Starts a task of each there; ``ended`` is told of their ends, on the loop."""

        def begin() -> None:
            for work in works:
                task = self._loop.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                task.add_done_callback(ended)

        with contextlib.suppress(RuntimeError):  # it has ended: `is_alive` tells
            self._loop.call_soon_threadsafe(begin)

    def run(self, work: Coroutine[Any, Any, None], seconds: float | None = None) -> None:
        """Does the work there and waits for it; raises what it raises, TimeoutError in the end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def stop(self, seconds: float) -> None:
        """Cancels what runs there and waits so long for the thread."""
        self.is_stopped = True
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._end)
        if self._thread is not threading.current_thread():  # where garbage is collected in it
            self._thread.join(seconds)

    def _end(self) -> None:
        if not self._is_ending:  # or it would stop in the midst of cancelling
            self._loop.stop()

    def _serve(self) -> None:
        # What ends the thread is no error of anybody's: who waits sees that it is dead.
        with contextlib.suppress(BaseException), asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(self._started.set)
            while not (self.is_stopped or self._loop.is_closed()):
                with contextlib.suppress(BaseException):  # which its task has kept
                    self._loop.run_forever()
            self._is_ending = True
            with contextlib.suppress(BaseException):
                runner.run(_settle())


async def _settle() -> None:
    """A few rounds for what was closed last: a connection lets go of its socket only then."""
    for _ in range(10):
        await asyncio.sleep(0.001)
