"""Batches for a generator that samples many requests at a time: who goes together, and when.

    stepping (its environment) --sample--> waiting --round--> in flight --completion--> stepping

All that wait go in one *round*, in the order in which the episodes began. A round starts once a
batch may be sent and no episode is stepping. Where none has come for ``linger_s``, those that
step are expected no longer, until they come by themselves. So the
batches of a seeded run are always the same where environments are quicker than that, and an
episode that hangs holds the others up once, for ``linger_s``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.generate import GenerateRequest, Generator
from rlgym_llm.types import Completion

__all__ = ["Batching", "BatchingGenerator", "CallOff", "Sample"]

Sample = Callable[[GenerateRequest], Awaitable[Completion]]
"""Samples one completion."""
Completions = list[Completion]
CallOff = Callable[[Callable[[], Completions]], Awaitable[Completions]]
"""Does a blocking call somewhere off the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How requests become batches for a generator with ``generate``; None means no bound."""

    max_size: int | None = None
    """Requests in one batch; a larger round is split, in order."""
    linger_s: float = 0.05
    """How long a round waits for stragglers after the last arrival; 0 waits for nobody."""
    max_in_flight: int | None = 1
    """Batches at a time; more than one needs a generator that takes calls from several threads."""

    def __post_init__(self) -> None:
        for name in ("max_size", "max_in_flight"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"batching: {name} must be at least 1 or None, got {value}")
        if not self.linger_s >= 0:
            raise UserError(f"batching: linger_s must be 0 or more, got {self.linger_s}")


@dataclass(slots=True, eq=False)
class _Slot:
    """An episode's place in the order of its batches."""

    order: int


@dataclass(slots=True, eq=False)
class _Waiting:
    slot: _Slot
    request: GenerateRequest
    future: asyncio.Future[Completion]


class BatchingGenerator:
    """Turns ``generate`` into ``sample``. ``call`` says how a batch is sampled off the loop.

    A GeneratorError or TimeoutError of a batch is raised to those of this batch only.
    """

    def __init__(self, generator: Generator, batching: Batching, call: CallOff) -> None:
        self._generator = generator
        self._batching = batching
        self._call = call
        self._orders = itertools.count()
        self._stepping: set[_Slot] = set()
        self._waiting: list[_Waiting] = []
        self._ready: deque[list[_Waiting]] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_change = 0.0

    @contextmanager
    def slot(self) -> Iterator[Sample]:
        """A place for one episode, as the function that samples for it."""
        slot = _Slot(next(self._orders))
        self._stepping.add(slot)
        try:
            yield partial(self._sample, slot)
        finally:
            self._stepping.discard(slot)
            self._consider()

    async def _sample(self, slot: _Slot, request: GenerateRequest) -> Completion:
        waiting = _Waiting(slot, request, asyncio.get_running_loop().create_future())
        self._stepping.discard(slot)
        self._waiting.append(waiting)
        self._last_change = waiting.future.get_loop().time()
        self._consider()
        return await waiting.future

    def _consider(self) -> None:
        """Starts a round if it is time, and sees to it that it is looked at again if not."""
        if not (self._waiting and self._has_room()):
            return
        if not self._stepping:
            self._start_round()
        elif self._timer is None:
            due = self._last_change + self._batching.linger_s
            self._timer = asyncio.get_running_loop().call_at(due, self._stop_expecting)

    def _stop_expecting(self) -> None:
        self._timer = None
        is_quiet = asyncio.get_running_loop().time() >= self._last_change + self._batching.linger_s
        if is_quiet and self._has_room():
            self._stepping.clear()
        self._consider()

    def _has_room(self) -> bool:
        most = self._batching.max_in_flight
        return not self._ready and (most is None or len(self._in_flight) < most)

    def _start_round(self) -> None:
        """Everyone who waits, in order, in batches of ``max_size``."""
        round_ = [one for one in self._waiting if not one.future.done()]  # some were cancelled
        round_.sort(key=lambda one: one.slot.order)
        self._waiting = []
        size = self._batching.max_size or max(1, len(round_))
        self._ready.extend(round_[start : start + size] for start in range(0, len(round_), size))
        self._start_batches()

    def _start_batches(self) -> None:
        most = self._batching.max_in_flight
        while self._ready and (most is None or len(self._in_flight) < most):
            task = asyncio.create_task(self._run_batch(self._ready.popleft()))
            self._in_flight.add(task)
            task.add_done_callback(self._batch_done)

    async def _run_batch(self, batch: Sequence[_Waiting]) -> None:
        requests = [one.request for one in batch]
        completions: list[Completion] = []
        failure: Exception | None = None
        try:
            completions = await self._generate(requests)
        except Exception as error:
            failure = error
        for place, one in enumerate(batch):
            if one.future.done():  # its episode was cancelled and is expected no more
                continue
            self._stepping.add(one.slot)  # here, before anyone else can start a round without it
            if failure is not None:
                one.future.set_exception(failure)
            else:
                one.future.set_result(completions[place])

    async def _generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        completions = await self._call(lambda: self._generator.generate(requests))
        if len(completions) != len(requests):
            raise GeneratorError(f"{len(completions)} completions for {len(requests)} requests")
        return completions

    def _batch_done(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if task.cancelled():
            return
        self._last_change = task.get_loop().time()
        self._start_batches()
        self._consider()
