"""The workers of a sandbox, and whose turn it is."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlgym_llm.errors import PluginError, UserError
from rlgym_llm.sandbox_process import Outcome, OutcomeStatus, WorkerProcess, WorkerSettings

__all__ = ["WorkerPool", "WorkerStartError"]

_CLOSED = "the sandbox was closed"


class WorkerStartError(PluginError):
    """No worker has ever started."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause
        """Why, without what the sandbox says about itself."""


class WorkerPool:
    """The workers, and whose turn it is.

    ``close`` may run inside any other method, when garbage is collected: it takes no lock of ours.
    """

    def __init__(self, settings: WorkerSettings, num_workers: int, max_calls: int) -> None:
        self._settings = settings
        self._num_workers = num_workers
        self._max_calls = max_calls
        self._closed = False
        self._proven = False  # a worker has been ready: the target can be imported
        self._broken: tuple[str, str] | None = None  # why it cannot: the message, the bare cause
        self._workers: set[WorkerProcess] = set()
        # A token gives the right to pop a slot; the warmest worker lies on top.
        self._slots: list[WorkerProcess | None] = [None] * num_workers
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(num_workers):
            self._tokens.put(None)
        self._warming = threading.Lock()
        # Threads for `acall` and `map`: daemons of our own, for those of concurrent.futures are
        # joined at exit, however long their calls may still take.
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._hiring = threading.Lock()

    def run(self, text: str, deadline_s: float | None = None) -> Outcome:
        """One call in the next free worker."""
        try:
            worker = self._take()
        except OSError as error:
            return self._not_started(str(error))
        is_sound = False
        try:
            if (failure := self._make_ready(worker)) is not None:
                return failure
            outcome = worker.run(text, deadline_s)
            has_survived = outcome.status in (OutcomeStatus.OK, OutcomeStatus.ERROR)
            is_sound = has_survived and worker.num_calls < self._max_calls
            return outcome
        finally:  # after an interrupt too: its answer would come to the next caller
            self._put_back(worker, is_sound=is_sound)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Do the work in one of our threads, of which there are as many as workers."""
        job = _Job(work=work, future=Future())
        self._jobs.put(job)
        with self._hiring:
            if len(self._threads) < self._num_workers and not self._closed:
                thread = threading.Thread(target=_serve, args=(self._jobs,), daemon=True)
                thread.start()
                self._threads.append(thread)
        if self._closed:
            self._end_threads()
        return job.future

    def warm(self, num_workers: int | None = None, within_s: float | None = None) -> None:
        """Start the workers of all free slots, or of so many, then wait for each, so long."""
        with self._warming:
            taken: list[WorkerProcess] = []
            try:
                with contextlib.suppress(queue.Empty):
                    for _ in range(num_workers or self._num_workers):
                        taken.append(self._take(block=False))
                for worker in taken:
                    if (failure := self._make_ready(worker, within_s)) is not None:
                        error = str(failure.error)
                        raise WorkerStartError(f"sandbox: {error}", error)
            except OSError as error:
                self._not_started(str(error))
            finally:
                for worker in taken:
                    self._put_back(worker, is_sound=worker.is_ready)

    def close(self) -> None:
        """Kill every worker; those who wait for one are told."""
        self._closed = True
        for worker in tuple(self._workers):
            worker.kill(_CLOSED)
        self._empty_slots()
        self._end_threads()

    def retire(self, seconds: float) -> None:
        """Let idle workers end by themselves, all within that time; no call is taken from now on.

        `close` must follow.
        """
        self._closed = True
        until = time.monotonic() + seconds
        idle = []
        with contextlib.suppress(IndexError):
            while True:
                if (worker := self._slots.pop()) is not None:
                    idle.append(worker)
        for worker in idle:
            worker.finish()
        for worker in idle:
            worker.wait(max(0.0, until - time.monotonic()))
            self._dismiss(worker)

    def forget(self) -> None:
        """In a forked child: close what it inherited, or the workers would outlive their parent."""
        for worker in tuple(self._workers):
            worker.forget()

    def _take(self, *, block: bool = True) -> WorkerProcess:
        """Wait for a free slot and take its worker, or start one; whose `_put_back` must follow."""
        self._tokens.get(block)
        worker: WorkerProcess | None = None
        try:
            if self._closed or not self._slots:
                raise UserError(f"{_CLOSED}: make a new one")
            worker = self._slots.pop()
            if self._broken is not None:
                raise WorkerStartError(*self._broken)
            if worker is not None and worker.is_ready and not worker.is_quiet():
                self._dismiss(worker)  # it died while it was idle
                worker = None
            return worker or self._hire()
        except BaseException:
            self._put_back(worker, is_sound=False)
            raise

    def _put_back(self, worker: WorkerProcess | None, *, is_sound: bool) -> None:
        if worker is not None and not is_sound:
            self._dismiss(worker)
            worker = None
            if self._proven and not self._closed:
                with contextlib.suppress(OSError):  # the next caller will hear of it
                    worker = self._hire()  # which gets ready while the caller goes on
        self._slots.append(worker)
        self._tokens.put(None)
        if self._closed:
            self._empty_slots()

    def _hire(self) -> WorkerProcess:
        worker = WorkerProcess(self._settings)
        self._workers.add(worker)
        if self._closed:  # `close` did not see it
            worker.kill(_CLOSED)
        return worker

    def _dismiss(self, worker: WorkerProcess) -> None:
        self._workers.discard(worker)
        worker.dispose()

    def _make_ready(self, worker: WorkerProcess, within_s: float | None = None) -> Outcome | None:
        """Wait until the worker is ready, or return what became of the call instead."""
        if worker.is_ready:
            return None
        outcome = worker.wait_ready(within_s)
        if outcome.status is OutcomeStatus.OK:
            self._proven = True
            return None
        if outcome.status is OutcomeStatus.ERROR and not self._proven:
            error = str(outcome.error)
            message = f"sandbox: cannot import {self._settings.target!r}: {error}"
            self._broken = message, error
            raise WorkerStartError(message, error)
        return self._not_started(outcome.error)

    def _not_started(self, cause: str | None) -> Outcome:
        """Raises where no worker has ever started; later it is one more way to lose a call."""
        message = f"no worker for {self._settings.target!r} started: {cause}"
        if self._closed or not self._proven:
            raise WorkerStartError(f"sandbox: {message}", str(cause))
        return Outcome(status=OutcomeStatus.DIED, error=message)

    def _empty_slots(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                if (worker := self._slots.pop()) is not None:
                    self._dismiss(worker)

    def _end_threads(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None and job.future.set_running_or_notify_cancel():
                    job.future.set_exception(UserError(f"{_CLOSED}: make a new one"))
        for _ in self._threads:
            self._jobs.put(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    work: Callable[[], Any]
    future: Future[Any]


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """What a thread of a pool does; it knows only the queue, so that the pool can be collected."""
    while (job := jobs.get()) is not None:
        if job.future.set_running_or_notify_cancel():
            try:
                job.future.set_result(job.work())
            except BaseException as error:  # the future carries it to its caller
                job.future.set_exception(error)
        del job
