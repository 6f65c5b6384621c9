"""An event loop for callers without one: it runs in the background and borrows their thread.

The generator stays where it was made: torch keeps one set of threads, Ctrl-C arrives in it, and
a notebook's own loop is not in the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from rlgym_llm.episodes.threads import loop_error

__all__ = ["CallersThread"]

T = TypeVar("T")
_Job = tuple[Callable[[], Any], asyncio.Future[Any]]
_CLOSE_S = 5.0


class CallersThread:
    """Runs a coroutine on a loop of its own and does, in the calling thread, what it hands over."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    async def do(self, work: Callable[[], T]) -> T:
        """On the loop: has ``work`` done in the calling thread."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        return await future

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. An interrupt of this thread cancels it."""
        result: Future[T] = Future()

        def live() -> None:
            try:
                result.set_result(asyncio.run(self._begin(main)))
            except BaseException as error:  # it is raised below
                result.set_exception(error)
            finally:
                self._jobs.put(None)

        thread = threading.Thread(target=live, name="rlgym-episodes", daemon=True)
        thread.start()
        try:
            while (job := self._jobs.get()) is not None:
                _do(*job)
        except BaseException:  # such as KeyboardInterrupt, here or in the work
            self.cancel()
            thread.join(_CLOSE_S)
            raise
        thread.join()
        return result.result()

    def cancel(self) -> None:
        """From any thread: cancels the coroutine, now or as soon as it begins."""
        self._is_cancelled = True
        if self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _begin(self, main: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        if self._is_cancelled:
            main.close()
            raise asyncio.CancelledError
        return await main


def _do(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    try:
        result, failure = work(), None
    except Exception as error:
        result, failure = None, loop_error(error)

    def tell() -> None:
        if future.done():  # cancelled
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)

    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
        future.get_loop().call_soon_threadsafe(tell)
