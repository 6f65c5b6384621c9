"""Backend ``async``: rewards that await, on an event loop of their own."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

from rlgym_llm.errors import RewardError, UserError, describe
from rlgym_llm.hung_threads import MOST_HUNG
from rlgym_llm.rewards import RewardContext
from rlgym_llm.score import check_needs
from rlgym_llm.scorers.call import (
    SETUP_HINT,
    BoundReward,
    Pending,
    setup_seconds,
    split_calls,
    split_rows,
)
from rlgym_llm.scorers.failed_score import failed_score
from rlgym_llm.scorers.loop import LoopThread
from rlgym_llm.scorers.read_score import read_score
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout

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
    its deadline: the loop is left behind and what it had not scored starts anew on another. So is
    one whose ``setup`` takes longer than 60 s and its deadline. What a reward cancels that is not
    its own is scored again.
    """

    holds = True

    def __init__(self, bound: BoundReward, *, concurrency: int) -> None:
        self._bound = bound
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._ctx: RewardContext | None = None
        self._loop: LoopThread | None = None
        self._left_behind: list[LoopThread] = []

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
        if loop is None or loop.pid != os.getpid() or not loop.is_alive:
            return
        try:
            self._run(loop, _CLOSE_S, "close")
        except TimeoutError:
            name = self._bound.name
            raise RewardError(f"reward {name!r} did not close within {_CLOSE_S:g} s") from None
        finally:
            loop.stop(_CLOSE_S)

    def running_loop(self, ctx: RewardContext) -> LoopThread:
        """The loop on which the reward is set up; a new one after a fork, a close or a hang."""
        with self._lock:
            loop = self._loop
            if loop is None or loop.pid != os.getpid() or not loop.is_alive:
                self._loop = None
                self._loop = loop = self._new_loop(self._ctx or ctx)
                weakref.finalize(self, loop.stop, 0.0)
            return loop

    def _new_loop(self, ctx: RewardContext) -> LoopThread:
        loop = LoopThread(self._concurrency)
        seconds = setup_seconds(self._bound.timeout_s)
        try:
            self._run(loop, seconds, "setup", ctx)
        except TimeoutError:
            loop.stop(0.0)
            name = self._bound.name
            raise RewardError(
                f"reward {name!r} failed in setup: not ready within {seconds:g} s{SETUP_HINT}"
            ) from None
        except BaseException:
            loop.stop(_CLOSE_S)
            raise
        return loop

    def _run(self, loop: LoopThread, seconds: float | None, method: str, *arguments: Any) -> None:
        """Calls a method of the reward on the loop; TimeoutError where it takes longer."""
        try:
            loop.run(self._on_loop(method, *arguments), seconds)
        except CancelledError as cancelled:
            raise self._failed(method, cancelled) from cancelled

    async def _on_loop(self, method: str, *arguments: Any) -> None:
        try:
            result = getattr(self._bound.reward, method)(*arguments)
            if inspect.isawaitable(result):
                await result
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            raise self._failed(method, failure) from failure

    def _failed(self, method: str, failure: BaseException) -> RewardError:
        return RewardError(f"reward {self._bound.name!r} failed in {method}: {describe(failure)}")

    def abandon(self, loop: LoopThread) -> int:
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


@dataclasses.dataclass(slots=True, eq=False)
class _Row:
    """One rollout and how far its scoring is."""

    rollout: Rollout
    ctx: RewardContext
    until: float | None = None
    """When its call is over its deadline; None before its turn and where it has none."""
    score: Score | None = None
    num_lost: int = 0
    """How many times its call was cut off from outside."""


class _Attempt:
    """The scoring of some rows on one loop, each in a task of its own."""

    def __init__(self, bound: BoundReward, rows: Sequence[_Row], loop: LoopThread) -> None:
        self.bound = bound
        self.rows = rows
        self.loop = loop
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self._num_left = len(rows)
        loop.start(map(self._score, rows), self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._num_left -= 1
        if not task.cancelled():  # or its row has no score
            self.failure = self.failure or task.exception()
        if self.failure is not None or not self._num_left:
            self.done.set()

    async def _score(self, row: _Row) -> None:
        async with self.loop.slots:
            row.score = await self._judge(row)

    async def _judge(self, row: _Row) -> Score:
        bound, rollout = self.bound, row.rollout
        limit = asyncio.timeout(bound.timeout_s)
        start = time.perf_counter()
        try:
            check_needs(bound.reward, [rollout])
            if bound.timeout_s is not None:
                row.until = time.monotonic() + bound.timeout_s
            async with limit:
                value = await bound.reward.ascore(rollout, row.ctx)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            task = asyncio.current_task()
            if isinstance(failure, asyncio.CancelledError) and task and task.cancelling():
                raise  # the loop ends, or a reward cancels what it finds
            seconds = time.perf_counter() - start
            if limit.expired():
                error = f"over its deadline of {bound.timeout_s:g} s; it was cancelled"
                return failed_score(bound, rollout, error, seconds, ScoreStatus.TIMEOUT)
            return failed_score(bound, rollout, describe(failure), seconds)
        seconds = time.perf_counter() - start
        return read_score(bound, rollout, value, seconds, seconds)

    def overdue(self) -> list[_Row]:
        """Rows whose calls should have been cut off."""
        now = time.monotonic() - _GRACE_S
        return [r for r in self.rows if r.score is None and r.until is not None and r.until < now]


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
        while (attempt := self._attempt) is not None:
            # A loop that a reward has ended tells nobody.
            is_over = attempt.done.wait(_LOOK_S) or not attempt.loop.is_alive
            if is_over and not attempt.loop.is_abandoned:
                self._go_on(attempt)
            elif overdue := attempt.overdue():
                self._give_up(attempt, overdue)
            elif attempt.loop.is_abandoned:  # another submission hangs on it
                self._restart()
        scores = [row.score for row in self._rows if row.score is not None]
        assert len(scores) == len(self._rows)
        return scores

    def _go_on(self, attempt: _Attempt) -> None:
        """What has no score was cut off: by `close`, or by a reward; then each is scored alone."""
        if attempt.failure is not None:
            self._attempt = None
            raise attempt.failure
        lost = [row for row in attempt.rows if row.score is None]
        if lost and attempt.loop.is_stopped:
            self._attempt = None
            raise UserError(f"reward {self._bound.name!r} was closed while it scored")
        for row in lost:
            row.num_lost += 1
        error = "its task was cancelled, or its event loop ended, alone as well"
        self._restart([row for row in lost if row.num_lost > 1], error, ScoreStatus.ERROR, most=1)

    def _give_up(self, attempt: _Attempt, overdue: Sequence[_Row]) -> None:
        """Leaves a loop behind, with the rows at which it hangs."""
        num_hung = self._scorer.abandon(attempt.loop)
        error = (
            f"over its deadline of {self._bound.timeout_s:g} s; it blocks the event loop or does "
            "not let itself be cancelled: where it blocks, declare backend 'thread'"
        )
        lost = [row for row in self._rows if row.score is None] if num_hung > MOST_HUNG else overdue
        self._restart(lost, error)

    def _restart(
        self,
        lost: Sequence[_Row] = (),
        error: str = "",
        status: ScoreStatus = ScoreStatus.TIMEOUT,
        *,
        most: int | None = None,
    ) -> None:
        """Starts anew what is unscored, or so much; what the old loop still finds is nobody's."""
        rows = []
        for row in self._rows:
            if row.score is not None:
                rows.append(row)
            elif row in lost:
                score = failed_score(self._bound, row.rollout, error, status=status)
                rows.append(_Row(row.rollout, row.ctx, score=score))
            else:
                rows.append(_Row(row.rollout, row.ctx, num_lost=row.num_lost))
        self._rows = rows
        self._attempt = self._start([row for row in rows if row.score is None][:most])
