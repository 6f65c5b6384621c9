"""Backend ``async``: rewards that await, on an event loop of their own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import os
import threading
import time
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any

from rlgym_llm.errors import RewardError, UserError
from rlgym_llm.rewards import RewardContext
from rlgym_llm.score import check_needs, describe, failed_score, read_score
from rlgym_llm.scorer_call import BoundReward, Pending, split_calls, split_rows
from rlgym_llm.scorer_thread import MOST_HUNG
from rlgym_llm.types import Rollout, Score, ScoreStatus

__all__ = ["AsyncScorer"]

_GRACE_S = 2.0  # for a call to end after its deadline
_LOOK_S = 0.25
_CLOSE_S = 5.0


class AsyncScorer:
    """Awaits ``ascore`` of many rollouts side by side, in a thread with an event loop of its own.

    The caller's loop, if it runs one, is never used. At most ``concurrency`` calls are under way,
    whatever was submitted; the deadline of one starts when its turn comes. ``setup`` and
    ``close`` run on that loop too, so that clients belong to it; they may be coroutines.

    A reward that blocks the loop, or that goes on when it is cancelled, is found two seconds after
    its deadline: the loop is left behind and what it had not scored starts anew on another.
    """

    def __init__(self, bound: BoundReward, *, concurrency: int) -> None:
        self._bound = bound
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._ctx: RewardContext | None = None
        self._loop: _Loop | None = None
        self._left_behind: list[_Loop] = []

    def setup(self, ctx: RewardContext) -> None:
        """Sets the reward up, on the loop."""
        self._ctx = ctx
        self.running_loop(ctx)

    def submit(self, rollouts: Sequence[Rollout], ctx: RewardContext, *, name: str) -> Pending:
        """Starts scoring."""
        bound = dataclasses.replace(self._bound, name=name)
        calls = split_calls(bound.reward, rollouts, ctx)
        rows = [_Row(row.rollouts[0], row.ctx) for call in calls for row in split_rows(call)]
        return _Submission(self, bound, rows).wait

    def close(self) -> None:
        """Closes the reward on its loop and ends that; raises RewardError where that takes 5 s."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None or loop.pid != os.getpid():
            return
        try:
            loop.run(self._on_loop("close"), _CLOSE_S)
        except TimeoutError:
            name = self._bound.name
            raise RewardError(f"reward {name!r} did not close within {_CLOSE_S:g} s") from None
        finally:
            loop.stop(_CLOSE_S)

    def running_loop(self, ctx: RewardContext) -> _Loop:
        """The loop on which the reward is set up; a new one after a fork, a close or a hang."""
        with self._lock:
            if self._loop is None or self._loop.pid != os.getpid():
                loop = _Loop(self._concurrency)
                try:
                    loop.run(self._on_loop("setup", self._ctx or ctx))
                except BaseException:
                    loop.stop(_CLOSE_S)
                    raise
                self._loop = loop
                weakref.finalize(self, loop.stop, 0.0)
            return self._loop

    async def _on_loop(self, method: str, *arguments: Any) -> None:
        try:
            result = getattr(self._bound.reward, method)(*arguments)
            if inspect.isawaitable(result):
                await result
        except (Exception, SystemExit) as failure:
            name = self._bound.name
            raise RewardError(
                f"reward {name!r} failed in {method}: {describe(failure)}"
            ) from failure

    def abandon(self, loop: _Loop) -> int:
        """Goes on without a loop that hangs; how many of them hang by now."""
        with self._lock:
            if self._loop is loop:
                self._loop = None
                self._left_behind.append(loop)
            loop.is_abandoned = True
            self._left_behind = [loop for loop in self._left_behind if loop.is_alive]
            num_hung = len(self._left_behind)
        loop.stop(0.0)
        return num_hung


class _Loop:
    """An event loop in a daemon thread, and the slots of the calls on it."""

    def __init__(self, concurrency: int) -> None:
        self.pid = os.getpid()
        self.slots = asyncio.Semaphore(concurrency)
        self.is_abandoned = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rlgym-reward", daemon=True)
        self._thread.start()
        self._started.wait()

    def _serve(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stopped = asyncio.Event()
            self._started.set()
            await self._stopped.wait()

        with asyncio.Runner() as runner:
            runner.run(main())

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts the work there; it tells of its own end."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, None], seconds: float | None = None) -> None:
        """Does the work there and waits for it; raises what it raises, TimeoutError in the end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def stop(self, seconds: float) -> None:
        """Cancels what runs there and waits so long for the thread."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stopped.set)
        if self._thread is not threading.current_thread():  # where garbage is collected in it
            self._thread.join(seconds)


@dataclasses.dataclass(slots=True, eq=False)
class _Row:
    """One rollout and how far its scoring is."""

    rollout: Rollout
    ctx: RewardContext
    until: float | None = None
    """When its call is over its deadline; None before its turn and where it has none."""
    score: Score | None = None


class _Attempt:
    """The scoring of some rows on one loop."""

    def __init__(self, bound: BoundReward, rows: Sequence[_Row], loop: _Loop) -> None:
        self.bound = bound
        self.rows = rows
        self.loop = loop
        self.done = threading.Event()
        self.failure: BaseException | None = None
        loop.start(self._score_all())

    async def _score_all(self) -> None:
        try:
            await asyncio.gather(*map(self._score, self.rows))
        except BaseException as failure:
            self.failure = failure
        finally:
            self.done.set()

    async def _score(self, row: _Row) -> None:
        async with self.loop.slots:
            row.score = await self._judge(row)

    async def _judge(self, row: _Row) -> Score:
        bound, rollout = self.bound, row.rollout
        limit = asyncio.timeout(bound.timeout_s)
        start = time.perf_counter()
        try:
            check_needs(bound.reward, rollout)
            if bound.timeout_s is not None:
                row.until = time.monotonic() + bound.timeout_s
            async with limit:
                value = await bound.reward.ascore(rollout, row.ctx)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the loop ends
            return failed_score(bound, rollout, describe(cancelled), time.perf_counter() - start)
        except (Exception, SystemExit) as failure:
            seconds = time.perf_counter() - start
            if limit.expired():
                error = f"over its deadline of {bound.timeout_s:g} s; it was cancelled"
                return failed_score(bound, rollout, error, seconds, ScoreStatus.TIMEOUT)
            return failed_score(bound, rollout, describe(failure), seconds)
        except KeyboardInterrupt as interrupt:  # in the loop it would end the thread
            raise _InterruptedError from interrupt
        seconds = time.perf_counter() - start
        return read_score(bound, rollout, value, seconds, seconds)

    def overdue(self) -> list[_Row]:
        """Rows whose calls should have been cut off."""
        now = time.monotonic() - _GRACE_S
        return [r for r in self.rows if r.score is None and r.until is not None and r.until < now]


class _InterruptedError(Exception):
    """A reward raised KeyboardInterrupt."""


class _Submission:
    """The rows of one submission, over as many loops as it takes."""

    def __init__(self, scorer: AsyncScorer, bound: BoundReward, rows: list[_Row]) -> None:
        self._scorer = scorer
        self._bound = bound
        self._rows = rows
        self._pid = os.getpid()
        self._attempt = self._start(rows)

    def _start(self, rows: Sequence[_Row]) -> _Attempt | None:
        if not rows:
            return None
        return _Attempt(self._bound, rows, self._scorer.running_loop(rows[0].ctx))

    def wait(self) -> list[Score]:
        """The scores, once all are there."""
        if os.getpid() != self._pid:
            raise RewardError(f"reward {self._bound.name!r}: submitted in another process")
        look_s = None if self._bound.timeout_s is None else _LOOK_S
        while (attempt := self._attempt) is not None:
            if attempt.done.wait(look_s) and not attempt.loop.is_abandoned:
                self._attempt = None
                if attempt.failure is not None:
                    raise self._told(attempt.failure)
            elif overdue := attempt.overdue():
                self._give_up(attempt, overdue)
            elif attempt.loop.is_abandoned:  # another submission hangs on it
                self._restart()
        scores = [row.score for row in self._rows if row.score is not None]
        assert len(scores) == len(self._rows)
        return scores

    def _told(self, failure: BaseException) -> BaseException:
        if isinstance(failure, _InterruptedError):
            return KeyboardInterrupt()
        if isinstance(failure, asyncio.CancelledError):
            return UserError(f"reward {self._bound.name!r} was closed while it scored")
        return failure

    def _give_up(self, attempt: _Attempt, overdue: Sequence[_Row]) -> None:
        """Leaves a loop behind, with the rows at which it hangs."""
        num_hung = self._scorer.abandon(attempt.loop)
        error = (
            f"over its deadline of {self._bound.timeout_s:g} s; it blocks the event loop or does "
            "not let itself be cancelled: where it blocks, declare backend 'thread'"
        )
        lost = [row for row in self._rows if row.score is None] if num_hung > MOST_HUNG else overdue
        self._restart(lost, error)

    def _restart(self, lost: Sequence[_Row] = (), error: str = "") -> None:
        """Starts anew what is unscored; what the old loop still finds is nobody's."""
        rows = []
        for row in self._rows:
            if row.score is not None:
                rows.append(row)
            elif row in lost:
                score = failed_score(self._bound, row.rollout, error, status=ScoreStatus.TIMEOUT)
                rows.append(_Row(row.rollout, row.ctx, score=score))
            else:
                rows.append(_Row(row.rollout, row.ctx))
        self._rows = rows
        self._attempt = self._start([row for row in rows if row.score is None])
