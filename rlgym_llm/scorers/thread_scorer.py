"""Backend ``thread``: calls side by side, each with a deadline that is kept."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence

from rlgym_llm.errors import RewardError, UserError
from rlgym_llm.hung_threads import MOST_HUNG
from rlgym_llm.rewards import RewardContext
from rlgym_llm.score import close_reward, score_call, setup_reward
from rlgym_llm.scorers.call import (
    BoundReward,
    Call,
    Pending,
    in_order,
    is_batched,
    split_calls,
    split_rows,
)
from rlgym_llm.scorers.failed_score import failed_scores
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout

__all__ = ["ThreadScorer"]

_MOST_ROWS = 16
_CLOSE_S = 5.0


class ThreadScorer:
    """Scores in threads of its own, from whichever thread or event loop it is asked.

    The deadline of a call starts when a thread takes it up. At the deadline its score is a
    ``timeout`` and its thread is given up: another takes its place, and what the call returns
    later is nobody's. After 64 such calls that have not come back, what is left is an error.
    """

    holds = True

    def __init__(self, bound: BoundReward, *, num_threads: int) -> None:
        self._bound = bound
        self._num_threads = num_threads
        self._crew: _Crew | None = None

    def setup(self, ctx: RewardContext) -> None:
        """Sets the reward up, in the caller's thread."""
        setup_reward(self._bound, ctx)

    def submit(self, rollouts: Sequence[Rollout], ctx: RewardContext, *, name: str) -> Pending:
        """Starts scoring."""
        crew = self._crew
        if crew is None or crew.pid != os.getpid():  # threads do not survive a fork
            crew = self._crew = _Crew(self._num_threads)
            weakref.finalize(self, crew.stop)
        bound = dataclasses.replace(self._bound, name=name)
        calls = split_calls(bound.reward, rollouts, ctx, most_rows=_MOST_ROWS)
        return crew.start(self, bound, calls).wait

    def close(self) -> None:
        """Ends the threads, waiting for calls under way (5 s at most), and closes the reward."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.pid == os.getpid():
            crew.stop()
            crew.join(_CLOSE_S)
        close_reward(self._bound)


@dataclasses.dataclass(slots=True, eq=False)
class _Job:
    """A call and what becomes of it; everything in it is guarded by the crew's lock."""

    call: Call
    submission: _Submission
    deadline_s: float | None
    until: float | None = None
    is_over: bool = False


class _Crew:
    """Threads that take up jobs, and the one lock under which all that changes."""

    def __init__(self, num_threads: int) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()  # `stop` may run wherever garbage is collected
        self.done = threading.Condition(self.lock)  # a submission is complete
        self._work = threading.Condition(self.lock)
        self._num_threads = num_threads
        self._threads: set[threading.Thread] = set()  # those not given up
        self._queue: deque[_Job] = deque()
        self._running: dict[_Job, threading.Thread] = {}
        self._num_hung = 0
        self._is_stopped = False

    def start(self, scorer: ThreadScorer, bound: BoundReward, calls: Sequence[Call]) -> _Submission:
        submission = _Submission(self, scorer, bound)
        with self.lock:
            self._add(submission, calls)
        return submission

    def _add(self, submission: _Submission, calls: Sequence[Call]) -> None:
        bound = submission.bound
        submission.num_left += len(calls)
        for call in calls:
            deadline_s = bound.timeout_s
            if deadline_s is not None and bound.reward.scope == "sample":
                deadline_s *= len(call.rollouts)
            self._queue.append(_Job(call=call, submission=submission, deadline_s=deadline_s))
        self._hire()
        self._work.notify(len(calls))

    def _hire(self) -> None:
        """As many threads as there are jobs, if so many may be."""
        if self._num_hung >= MOST_HUNG:
            while self._queue:
                self._refuse(self._queue.popleft())
            return
        wanted = len(self._running) + len(self._queue)
        while len(self._threads) < min(self._num_threads, wanted):
            thread = threading.Thread(target=self._serve, name="rlgym-reward", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _refuse(self, job: _Job) -> None:
        bound = job.submission.bound
        error = (
            f"not scored, since {MOST_HUNG} calls of this reward hang in threads, which nothing "
            "can stop; declare backend 'process'"
        )
        job.submission.add(job.call, failed_scores(bound, job.call, error))

    def _serve(self) -> None:
        me = threading.current_thread()
        while (job := self._take(me)) is not None:
            is_mine = self._do(job)
            del job  # an idle thread holds no scorer
            if not is_mine:
                return

    def _do(self, job: _Job) -> bool:
        """Scores, and says whether the thread is still one of the crew."""
        scores: list[Score] = []
        failure: BaseException | None = None
        try:
            scores = score_call(job.submission.bound, job.call)
        except BaseException as raised:  # such as KeyboardInterrupt: its waiter gets it
            failure = raised
        with self.lock:
            if job.is_over:  # too late: its score is given and this thread replaced
                self._num_hung -= 1
                return False
            del self._running[job]
            job.submission.add(job.call, scores, failure)
            return True

    def _take(self, me: threading.Thread) -> _Job | None:
        with self.lock:
            while not self._queue and not self._is_stopped:
                self._work.wait()
            if self._is_stopped:
                return None
            job = self._queue.popleft()
            self._running[job] = me
            if job.deadline_s is not None:
                job.until = time.monotonic() + job.deadline_s
            return job

    def expire(self) -> float | None:
        """Ends what is over its deadline; how long until anything else can be, None for never.

        Whoever waits does this for all, so that calls nobody waits for yet block no thread.
        """
        now = time.monotonic()
        for job in [j for j in self._running if j.until is not None and j.until <= now]:
            self._threads.discard(self._running.pop(job))
            self._num_hung += 1
            job.is_over = True
            self._give_up(job)
        self._hire()
        waits = [job.until - now for job in self._running if job.until is not None]
        if self._queue and (least := self._queue[0].submission.bound.timeout_s) is not None:
            waits.append(least)  # of what starts in the meantime
        return min(waits, default=None)

    def _give_up(self, job: _Job) -> None:
        submission, call = job.submission, job.call
        if is_batched(submission.bound.reward) and len(call.rollouts) > 1:
            submission.num_left -= 1
            self._add(submission, split_rows(call))  # one of them may be the one that hangs
            return
        error = f"over its deadline of {job.deadline_s:g} s; its thread was given up"
        scores = failed_scores(
            submission.bound, call, error, seconds=job.deadline_s or 0, status=ScoreStatus.TIMEOUT
        )
        submission.add(call, scores)

    def stop(self) -> None:
        """No further job is taken up; who waits for one is told."""
        with self.lock:
            self._is_stopped = True
            self._queue.clear()
            self._work.notify_all()
            self.done.notify_all()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def join(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in tuple(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


class _Submission:
    """The scores of one submission as they come in."""

    def __init__(self, crew: _Crew, scorer: ThreadScorer, bound: BoundReward) -> None:
        self._scorer = scorer  # which ends the crew when it is collected
        self.bound = bound
        self.num_left = 0
        self._crew = crew
        self._found: list[tuple[Call, Sequence[Score]]] = []
        self._failure: BaseException | None = None

    def add(
        self, call: Call, scores: Sequence[Score], failure: BaseException | None = None
    ) -> None:
        """Notes what became of a call; under the crew's lock."""
        self._found.append((call, scores))
        self._failure = self._failure or failure
        self.num_left -= 1
        if not self.num_left:
            self._crew.done.notify_all()

    def wait(self) -> list[Score]:
        """The scores, once all are there."""
        crew = self._crew
        if crew.pid != os.getpid():
            raise RewardError(f"reward {self.bound.name!r}: submitted in another process")
        with crew.lock:
            while self.num_left and self._failure is None:
                if crew.is_stopped:
                    raise UserError(f"reward {self.bound.name!r} was closed while it scored")
                seconds = crew.expire()
                if self.num_left:
                    crew.done.wait(seconds)
        if self._failure is not None:
            raise self._failure
        return in_order(self._found)
