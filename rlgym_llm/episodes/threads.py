"""Threads for calls that may block, with deadlines that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rlgym_llm.errors import RlgymError
from rlgym_llm.hung_threads import MOST_HUNG

__all__ = ["Call", "DeadlineThreads", "TooManyHungError", "loop_error"]

T = TypeVar("T")

_TICK_S = 0.005
"""How often the threads looks after its threads while they work; also Python's switch interval."""


def loop_error(raised: BaseException) -> Exception:
    """The error as an event loop can bear it.

    It would end at a SystemExit, take a CancelledError for its own, and refuse a StopIteration.
    """
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RlgymError(repr(raised))


class TooManyHungError(RlgymError):
    """So many calls hang that no further one is taken."""


class Call(Generic[T]):
    """One call that a thread does. What it does under ``with call.within(5):`` has a deadline."""

    __slots__ = ("_seconds", "future", "is_given_up", "until", "work")

    def __init__(self, work: Callable[[Call[T]], T], future: asyncio.Future[T]) -> None:
        self.work = work
        self.future = future
        self.until: float | None = None
        self.is_given_up = False
        self._seconds: float | None = None

    def within(self, seconds: float | None) -> Self:
        """The deadline of what follows, from now on; None for none."""
        self._seconds = seconds
        return self

    def __enter__(self) -> None:
        if self._seconds is not None:
            self.until = time.monotonic() + self._seconds

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.until = None


class DeadlineThreads:
    """Threads that do the calls of one event loop, first come, first served.

    A call that misses its deadline raises TimeoutError; its thread is given up and another takes
    its place. With 64 calls that have not come back, `call` raises TooManyHungError.

    One thread does while calls only compute, since it is all that Python can use and more would
    keep the loop waiting. While calls wait and the processor is idle, the threads doubles.
    """

    def __init__(self, num_threads: int | None, *, name: str = "rlgym-env") -> None:
        self._most_threads = num_threads
        self._name = name
        self._queue: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards what follows, up to the blank line
        self._running: set[Call[Any]] = set()
        self._num_hung = 0
        self._cpu_s = 0.0

        self._loop: asyncio.AbstractEventLoop | None = None
        self._num_threads = 0  # those not given up
        self._done: deque[tuple[Call[Any], Any, Exception | None]] = deque()
        self._is_waking = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_tick = (0.0, 0.0)  # wall clock and processor time

    async def call(self, work: Callable[[Call[T]], T]) -> T:
        """What ``work(call)`` returns or raises, done in a thread."""
        if self._num_hung >= MOST_HUNG:
            raise TooManyHungError(
                f"{MOST_HUNG} calls hang in threads, which nothing can stop; mend the environment "
                "or give its own calls a timeout"
            )
        self._loop = asyncio.get_running_loop()
        call = Call(work, self._loop.create_future())
        self._queue.put(call)
        if not self._num_threads:
            self._start_threads(1)
        if self._timer is None:
            self._last_tick = self._times()
            self._timer = self._loop.call_later(_TICK_S, self._tick)
        future: asyncio.Future[T] = call.future
        return await future

    async def do(self, work: Callable[[], T]) -> T:
        """The same for work that needs no deadline."""
        return await self.call(lambda call: work())

    def stop(self) -> None:
        """Ends the threads once what they do is done; those that hang are left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in range(self._num_threads):
            self._queue.put(None)
        self._num_threads = 0

    def _start_threads(self, wanted: int) -> None:
        if self._most_threads is not None:
            wanted = min(wanted, self._most_threads - self._num_threads)
        for _ in range(wanted):
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            self._num_threads += 1

    def _tick(self) -> None:
        """On the loop, while there is work: gives up what is late, hires where that helps."""
        self._timer = None
        assert self._loop is not None, "a call started this"
        self._expire()
        (wall, cpu), (last_wall, last_cpu) = self._times(), self._last_tick
        self._last_tick = wall, cpu
        num_queued = self._queue.qsize()
        if num_queued and cpu - last_cpu < 0.5 * (wall - last_wall):
            self._start_threads(min(num_queued, max(1, self._num_threads)))
        if num_queued or self._running:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _times(self) -> tuple[float, float]:
        return time.monotonic(), self._cpu_s + time.thread_time()

    def _expire(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [call for call in self._running if call.until is not None and call.until <= now]
            for call in late:
                call.is_given_up = True
                self._running.remove(call)
                self._num_hung += 1
        for call in late:
            self._num_threads -= 1
            if not call.future.done():
                seconds = call._seconds
                call.future.set_exception(
                    TimeoutError(f"no answer within {seconds:g} s; its thread was given up")
                )

    def _serve(self) -> None:
        """A thread's life: takes calls until there is none or one is given up."""
        while (call := self._queue.get()) is not None:
            with self._lock:
                self._running.add(call)
            started = time.thread_time()
            result, error = None, None
            try:
                result = call.work(call)
            except BaseException as raised:
                error = loop_error(raised)
            with self._lock:
                self._cpu_s += time.thread_time() - started
                if call.is_given_up:
                    self._num_hung -= 1
                    return
                self._running.remove(call)
            self._done.append((call, result, error))
            if not self._is_waking:  # one wake-up for all that is done until the loop looks
                self._is_waking = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    assert self._loop is not None, "a call started this"
                    self._loop.call_soon_threadsafe(self._collect)
            del call, result, error

    def _collect(self) -> None:
        """On the loop: hands out what the threads have done."""
        self._is_waking = False  # before the look, so that nothing done from here on is missed
        while self._done:
            call, result, error = self._done.popleft()
            if call.future.done():  # cancelled
                continue
            if error is None:
                call.future.set_result(result)
            else:
                call.future.set_exception(error)
