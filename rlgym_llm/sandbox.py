"""Run a function in worker processes that bound its time and memory.

``Sandbox("module:function")`` keeps a few workers, each a Python process of its own that has
imported the function and calls it, once for each JSON value it is sent. A call that overruns, runs
out of memory or crashes costs its own `Outcome`: the worker is killed with all that it started,
and another takes its place. The deadline of a call starts when a worker takes it up: neither the
wait for a free worker nor the start of one counts.

It works wherever Python does: from any thread, any asyncio loop, daemonic and forked processes,
scripts without a main guard and notebooks, for workers are plain subprocesses and the parent
handles no signal. A worker goes when its parent does, however that ends.

What it is not: a wall. The function runs as the same user, may read files, use the network and
start processes, and could forge its own answer. It bounds the time and the memory of code that is
slow or greedy or crashes; to run what a model wrote takes a container as well. Calls in one worker
share its module state. Linux and macOS (which enforces no memory limit); not Windows.
"""

from __future__ import annotations

import functools
import json
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Literal, Self

from rlgym_llm.errors import ConfigError, PluginError
from rlgym_llm.sandbox_pool import WorkerPool, WorkerStartError
from rlgym_llm.sandbox_process import Outcome, OutcomeStatus, WorkerSettings

__all__ = ["LONGEST_S", "Outcome", "OutcomeStatus", "Sandbox", "WorkerStartError"]

LONGEST_S = 1e6
"""The longest deadline that a sandbox takes, in seconds: none, to all intents."""
_NO_ARGUMENT = object()
_SANDBOXES: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class Sandbox:
    """Workers that call the function ``target``, given as ``module:attribute``.

    Nothing starts before the first call or `warm`. Arguments and values are what JSON carries, NaN
    and infinities included: a tuple arrives as a list, a key as a string. What the function prints
    goes to stderr.

    ``call`` raises nothing that the function did; only PluginError where the target cannot be
    imported or no worker ever started, TypeError for an argument that JSON cannot carry, UserError
    after ``close``.

    >>> with Sandbox("math:factorial") as sandbox:
    ...     sandbox.call(5).value
    ...     sandbox.call(-1).error
    120
    'ValueError: factorial() not defined for negative values'
    """

    def __init__(
        self,
        target: str,
        *,
        num_workers: int = 1,
        deadline_s: float = 1.0,
        memory_mb: int | None = 512,
        start_deadline_s: float = 30.0,
        max_calls: int = 5_000,
        memory: Literal["address_space", "resident", "auto"] = "address_space",
        folder: str | None = None,
        factory_argument: Any = _NO_ARGUMENT,
    ) -> None:
        """Settings of every worker.

        ``max_calls``: a worker is replaced after as many, so that its memory cannot creep.

        ``memory``: what ``memory_mb`` bounds. The address space is bounded by the kernel, which
        refuses what goes beyond it, but torch maps far more than it uses; the resident size is
        looked at every 50 ms. ``auto`` is the resident size where the target has loaded torch by
        the time it is ready, and the address space from then on otherwise.

        ``folder``: where workers start; None is where this process is when it starts one.

        ``factory_argument``: where given, the target is a factory. Each worker calls
        ``target(factory_argument, take)`` as it starts, under ``start_deadline_s``, and what that
        returns is the function. A function that goes through several items in a call may call
        ``take()`` (below 4,000 times) before each: the deadline starts anew, and ``num_taken`` of
        a failed call tells how far it came. If it has a method ``close``, a worker that is let go
        by `close` with time left calls it.
        """
        module, colon, attribute = target.partition(":")
        if not (module and colon and attribute) or module == "__main__":
            raise PluginError(
                f"sandbox: cannot import {target!r}: give 'module:function', "
                "of a module that other processes can import"
            )
        counts = {"num_workers": num_workers, "max_calls": max_calls, "memory_mb": memory_mb}
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ConfigError(f"sandbox: {name} must be at least 1, not {count!r}")
        for name, seconds in {
            "deadline_s": deadline_s,
            "start_deadline_s": start_deadline_s,
        }.items():
            if not (0 < seconds <= LONGEST_S):
                raise ConfigError(f"sandbox: {name} must be above 0 and at most {LONGEST_S:g}")
        self._settings = WorkerSettings(
            target=target,
            deadline_s=deadline_s,
            memory_mb=memory_mb,
            memory=memory,
            start_deadline_s=start_deadline_s,
            folder=folder,
            is_factory=factory_argument is not _NO_ARGUMENT,
            argument=None if factory_argument is _NO_ARGUMENT else factory_argument,
        )
        self._num_workers = num_workers
        self._max_calls = max_calls
        self._open()
        _SANDBOXES.add(self)
        _watch_forks()

    def call(self, argument: Any, *, deadline_s: float | None = None) -> Outcome:
        """Call the function and wait for what becomes of it; ``deadline_s`` is for this call."""
        return self._pool.run(_encode(argument), deadline_s)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Do work, such as several calls, in one of our threads; there are as many as workers."""
        return self._pool.submit(work)

    async def acall(self, argument: Any) -> Outcome:
        """As `call`, from any event loop and without blocking it; waiting calls take no thread."""
        import asyncio

        text = _encode(argument)
        pool = self._pool
        return await asyncio.wrap_future(pool.submit(lambda: pool.run(text)))

    def map(self, arguments: Sequence[Any]) -> list[Outcome]:
        """Call the function for each argument, shared out over the workers; outcomes in order."""
        texts = deque(enumerate([_encode(argument) for argument in arguments]))
        outcomes: dict[int, Outcome] = {}
        pool = self._pool

        def share() -> None:
            while True:
                try:
                    number, text = texts.popleft()
                except IndexError:
                    return
                outcomes[number] = pool.run(text)

        helpers = [pool.submit(share) for _ in range(min(self._num_workers, len(texts)) - 1)]
        try:
            share()
        finally:
            texts.clear()  # where this thread was interrupted, the others stop as well
            busy = [helper for helper in helpers if not helper.cancel()]
        for helper in busy:
            helper.result()
        return [outcomes[number] for number in range(len(arguments))]

    def warm(self, num_workers: int | None = None, *, within_s: float | None = None) -> None:
        """Start workers that are not in use, all or so many, and wait until each is ready.

        Raises WorkerStartError, a PluginError, where one does not get ready, within ``within_s``
        if that is given and else within ``start_deadline_s``.
        """
        self._pool.warm(num_workers, within_s)

    def close(self, grace_s: float = 0.0) -> None:
        """Kill the workers. Calls that are under way end as ``died``; closing twice is fine.

        With ``grace_s`` workers that are idle may end by themselves, within that time.
        """
        if grace_s and self._finalizer.alive:
            self._pool.retire(grace_s)
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Sandbox], tuple[Any, ...]]:
        """A copy elsewhere has the same settings and workers of its own."""
        settings: dict[str, Any] = {
            "num_workers": self._num_workers,
            "deadline_s": self._settings.deadline_s,
            "memory_mb": self._settings.memory_mb,
            "start_deadline_s": self._settings.start_deadline_s,
            "max_calls": self._max_calls,
            "memory": self._settings.memory,
            "folder": self._settings.folder,
        }
        if self._settings.is_factory:
            settings["factory_argument"] = self._settings.argument
        return functools.partial(Sandbox, **settings), (self._settings.target,)

    def _open(self) -> None:
        self._pool = WorkerPool(self._settings, self._num_workers, self._max_calls)
        self._finalizer = weakref.finalize(self, self._pool.close)

    def _after_fork_in_child(self) -> None:
        """Leave the parent its workers and locks; a closed sandbox stays closed."""
        if self._finalizer.detach() is not None:
            self._pool.forget()
            self._open()


def _encode(argument: Any) -> str:
    try:
        return json.dumps(argument)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"sandbox: JSON cannot carry the argument: {error}") from None


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _after_fork_in_child() -> None:
    for sandbox in tuple(_SANDBOXES):
        sandbox._after_fork_in_child()
