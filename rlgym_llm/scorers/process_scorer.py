"""Backend ``process``: a reward in worker processes, which may hang, crash or eat memory there."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from rlgym_llm.errors import RewardError, describe
from rlgym_llm.rewards import RewardContext
from rlgym_llm.sandbox import LONGEST_S, Outcome, OutcomeStatus, Sandbox, WorkerStartError
from rlgym_llm.scorers.call import (
    SETUP_HINT,
    BoundReward,
    Call,
    Pending,
    in_order,
    is_batched,
    setup_seconds,
    split_calls,
    split_rows,
)
from rlgym_llm.scorers.failed_score import failed_scores
from rlgym_llm.scorers.source import RewardSource, pack_reward
from rlgym_llm.scorers.worker import read_scores, request, worker_argument
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout
from rlgym_llm.working_folder import current_folder

__all__ = ["MOST_ROWS", "ProcessScorer"]

MOST_ROWS = 16
"""Rollouts in one ``score_batch`` of scope ``sample``: the fewer, the sooner one that hangs is
found; so many whatever the load, for a model's scores may depend on what it is batched with."""
_MEMORY_MB = 4096
_START_S = 600.0  # a model may be large, and several workers load theirs at a time
_CLOSE_S = 5.0
_REQUEST_S = 0.02  # work in one request: the pipes' cost is small beside it, and so is its loss
_MOST_CALLS = 64


class ProcessScorer:
    """Scores in workers of a sandbox, each of which builds the reward and sets it up, once.

    The deadline of a call starts when its worker takes it up. A call that overruns, crashes or
    outgrows ``memory_mb`` (4096 by default; see ``memory="auto"`` of `Sandbox`) costs its own
    rollouts and its worker, which is replaced. The calls that shared a request with it are made
    again, and a ``score_batch`` that went down is repeated row by row. The first worker has 60 s
    to set the reward up, or its ``timeout_s`` where that is longer; 600 s where it has none.
    """

    holds = True

    def __init__(
        self,
        bound: BoundReward,
        *,
        source: RewardSource | None,
        memory_mb: int | None,
        num_workers: int,
    ) -> None:
        self._bound = bound
        self._packed = pack_reward(bound.reward, source)
        self._folder = current_folder()  # where paths among its options start
        self._memory_mb = memory_mb or _MEMORY_MB
        self._num_workers = num_workers
        self._sandbox: Sandbox | None = None

    def setup(self, ctx: RewardContext) -> None:
        """Starts the first worker. Raises RewardError with what the reward raised there."""
        self._started(ctx)

    def submit(self, rollouts: Sequence[Rollout], ctx: RewardContext, *, name: str) -> Pending:
        """Starts scoring; as many requests are under way as there are workers."""
        if not rollouts:
            return list
        sandbox = self._started(ctx)
        work = _Submission(self._bound, name, sandbox, self._num_workers, rollouts, ctx)
        return work.wait

    def close(self) -> None:
        """Lets idle workers close the reward, for 5 s at most; kills the rest."""
        if self._sandbox is not None:
            self._sandbox.close(grace_s=_CLOSE_S)
            self._sandbox = None

    def _started(self, ctx: RewardContext) -> Sandbox:
        if self._sandbox is not None:
            return self._sandbox
        sandbox = Sandbox(
            "rlgym_llm.scorers.worker:make_worker",
            num_workers=self._num_workers,
            deadline_s=LONGEST_S,
            start_deadline_s=_START_S,
            memory_mb=self._memory_mb,
            memory="auto",
            folder=self._folder,
            factory_argument=worker_argument(
                self._bound.name, self._packed, ctx, self._bound.timeout_s
            ),
        )
        seconds = setup_seconds(self._bound.timeout_s) or _START_S
        try:
            sandbox.warm(1, within_s=seconds)
        except WorkerStartError as failure:
            sandbox.close()
            hint = SETUP_HINT if failure.cause == f"not ready within {seconds:g} s" else ""
            raise RewardError(
                f"reward {self._bound.name!r} failed in setup: {failure.cause}{hint}"
            ) from failure
        except BaseException:
            sandbox.close()
            raise
        self._sandbox = sandbox
        return sandbox


class _Submission:
    """The calls of one submission, shared out over the workers as each gets free."""

    def __init__(
        self,
        bound: BoundReward,
        name: str,
        sandbox: Sandbox,
        num_workers: int,
        rollouts: Sequence[Rollout],
        ctx: RewardContext,
    ) -> None:
        reward = bound.reward
        self._bound = BoundReward(reward=reward, name=name, timeout_s=bound.timeout_s)
        self._sandbox = sandbox
        self._num_workers = num_workers
        self._pid = os.getpid()
        calls = split_calls(reward, rollouts, ctx, most_rows=MOST_ROWS)
        self._calls = deque(calls)
        self._seconds_per_call = _REQUEST_S  # one call at first
        self._found: list[tuple[Call, list[Score]]] = []
        self._sharers: list[Future[Any]] = [
            sandbox.submit(self._share) for _ in range(min(num_workers, len(calls)))
        ]

    def wait(self) -> list[Score]:
        """The scores, once all are there."""
        if os.getpid() != self._pid:
            raise RewardError(f"reward {self._bound.name!r}: submitted in another process")
        for sharer in self._sharers:
            sharer.result()
        return in_order(self._found)

    def _share(self) -> None:
        while calls := self._next():
            self._score(calls)

    def _next(self) -> list[Call]:
        """The next calls for one request: more of them where they are quick."""
        fair = len(self._calls) // self._num_workers
        num = min(fair, _MOST_CALLS, int(_REQUEST_S / max(self._seconds_per_call, 1e-6)))
        calls = []
        try:
            for _ in range(max(num, 1)):
                calls.append(self._calls.popleft())
        except IndexError:  # another thread was quicker
            pass
        return calls

    def _score(self, calls: Sequence[Call]) -> None:
        """Has the calls scored, whatever becomes of them on the way."""
        if not calls:
            return
        outcome = self._ask(calls)
        if outcome.status is OutcomeStatus.OK:
            outcome = self._read(calls, outcome)
        if outcome.status is OutcomeStatus.OK:
            self._seconds_per_call = outcome.seconds / len(calls)
            self._found += outcome.value
        elif len(calls) == 1:
            self._blame(calls[0], outcome)
        # One note is of the request itself; a last one says that the calls are behind it.
        elif 0 <= (at := outcome.num_taken - 2) < len(calls):
            self._blame(calls[at], outcome)
            self._score(calls[:at])
            self._score(calls[at + 1 :])
        else:
            for call in calls:
                self._score([call])

    def _read(self, calls: Sequence[Call], outcome: Outcome) -> Outcome:
        """The outcome with calls and their scores as its value."""
        try:
            name = self._bound.name
            scores = [read_scores(name, answers) for answers in outcome.value]
            found = [
                (call, [score for score, _ in zip(of_call, call.rollouts, strict=True)])
                for call, of_call in zip(calls, scores, strict=True)
            ]
        except Exception as failure:  # the boundary around what a reward has meddled with
            error = f"its process wrote no scores: {describe(failure)}"
            return Outcome(status=OutcomeStatus.ERROR, error=error)
        return replace(outcome, value=found)

    def _blame(self, call: Call, outcome: Outcome) -> None:
        """The call at which a worker failed: its rollouts alone, or as a whole."""
        if is_batched(self._bound.reward) and len(call.rollouts) > 1:
            for row in split_rows(call):
                self._score([row])
            return
        status, error = ScoreStatus.ERROR, outcome.error or ""
        if outcome.status is OutcomeStatus.TIMEOUT:
            status, error = ScoreStatus.TIMEOUT, f"{error}; its process was killed"
        elif outcome.status is OutcomeStatus.DIED:
            error = f"its process died ({error})"
        scores = failed_scores(self._bound, call, error, seconds=outcome.seconds, status=status)
        self._found.append((call, scores))

    def _ask(self, calls: Sequence[Call]) -> Outcome:
        timeout_s = self._bound.timeout_s
        if timeout_s is not None and self._bound.reward.scope == "sample":
            timeout_s *= max(len(call.rollouts) for call in calls)
        try:
            asked = request(self._bound.name, calls)
        except Exception as failure:  # the boundary around the columns of a task, which may be any
            error = f"cannot be sent to another process: {describe(failure)}"
            return Outcome(status=OutcomeStatus.ERROR, error=error)
        return self._sandbox.call(asked, deadline_s=timeout_s)
