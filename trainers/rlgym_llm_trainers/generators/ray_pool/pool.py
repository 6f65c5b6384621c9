"""The pool: requests wait in one queue, processes that have room take them, dead ones are replaced.

    submit --> waiting --most room--> in flight on actor-0, actor-1, ... --> the request's future
                  ^                        |
                  +---- died, late, failed-+      (elsewhere, at most max_retries times)

All state belongs to one event loop in a thread of its own, so nothing here is locked.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from rlgym_llm.errors import GeneratorError, UserError, WeightSyncError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.ray_pool.dispatcher import Dispatcher
from rlgym_llm_trainers.generators.ray_pool.handle import (
    ActorGoneError,
    ActorHandle,
    in_words,
    is_final,
    within,
)
from rlgym_llm_trainers.generators.ray_pool.place import Actor, Job, Place, PoolLimits, State
from rlgym_llm_trainers.generators.ray_pool.weights import Weights, give, give_all

__all__ = ["ActorPool", "MakeActor"]

T = TypeVar("T")
MakeActor = Callable[[str, int], ActorHandle]
"""``make("actor-3", 1)``: starts the process of that name in place 1, without waiting for it."""


class ActorPool:
    """Samples through ``num_actors`` processes and keeps that many alive.

    Every request that is submitted ends in its own future, once: with a `Completion` whose
    ``sampled_by`` names the process, or with GeneratorError: nobody can sample it, ``max_retries``
    did not help, or no process is left. Nothing is sampled before the first `load`. Its methods
    may be called from any thread.
    """

    def __init__(self, make_actor: MakeActor, *, num_actors: int, limits: PoolLimits) -> None:
        self._make_actor = make_actor
        self._limits = limits
        self._places = [Place(index) for index in range(num_actors)]
        self._dispatcher = Dispatcher(self._places, limits)
        self._numbers = itertools.count()
        self._weights: Weights | None = None
        self._is_syncing = False
        self._is_fixed = False  # a transfer between GPUs takes no new process in
        self._first_cause: Exception | None = None
        self._num_restarts = 0
        self._window_start = time.monotonic()
        self._is_closed = False
        self._keepers: list[asyncio.Task[None]] = []
        self._change = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="rlgym-pool", daemon=True)
        self._thread.start()
        self._loop.call_soon_threadsafe(self._open)

    @property
    def policy_version(self) -> int | None:
        """Version of the weights that are sampled from; None before the first `load`."""
        weights = self._weights
        return None if weights is None else weights.version

    def submit(self, request: GenerateRequest) -> Future[Completion]:
        """The completion, later."""
        job = Job(request)
        if self._is_closed:
            job.settle(GeneratorError("the pool of generators is closed"))
        else:
            self._loop.call_soon_threadsafe(self._take_in, job)
        return job.future

    def load(self, weights: Weights) -> None:
        """Gives ``weights`` to every process that is up, side by side, and checks them.

        Returns once all that are up sample from them; those that failed are replaced, unless
        ``weights`` come by a transfer: from the first one on the processes stay the same. Raises
        WeightSyncError, with the old weights in service, where none took them or a canary does not
        agree; UserError where no process starts by a mistake of the user's.
        """
        self._call(self._load(weights))

    def metrics(self) -> dict[str, float]:
        """What has happened since the last call: replacements, retries, share of idle time."""
        return self._call(self._metrics())

    def close(self) -> None:
        """Ends the processes; what waits fails with GeneratorError. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)

    # --- the loop's side

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()

    def _open(self) -> None:
        self._keepers = [self._loop.create_task(self._keep(place)) for place in self._places]

    def _take_in(self, job: Job) -> None:
        if self._weights is None and not self._is_syncing and not self._dispatcher.failure:
            job.settle(GeneratorError("the generators have no weights yet: sync comes first"))
        else:
            self._dispatcher.add(job)

    async def _keep(self, place: Place) -> None:
        """The life of a place: a process, and after it another one while that may help."""
        while True:
            name = f"actor-{next(self._numbers)}"
            try:
                actor = place.actor = Actor(name, place, self._make_actor(name, place.index))
            except Exception as error:
                place.cause = place.cause or error
                break
            cause = await self._live(actor)
            self._dispatcher.lose(actor, cause)
            place.cause = place.cause or cause
            is_hopeless = self._is_fixed or (is_final(cause) and not actor.was_ready)
            if is_hopeless or place.num_restarts >= self._limits.max_restarts:
                break
            place.num_restarts += 1
            self._num_restarts += 1
        place.actor = None
        self._first_cause = self._first_cause or place.cause
        if not self._dispatcher.actors:
            failure = GeneratorError(f"no generator process is left: {in_words(self._first_cause)}")
            failure.__cause__ = self._first_cause
            self._dispatcher.stop(failure)
        else:
            self._dispatcher.dispatch()  # a retry may have waited for this place
        self._announce()

    async def _live(self, actor: Actor) -> Exception:
        """Waits for a process, brings it up to date, lets it serve; returns what ended it."""
        try:
            await within(
                self._limits.start_timeout_s, actor.handle.ready(), f"{actor.name} was not ready"
            )
            actor.was_ready = True
            while not (actor.is_lost or self._is_current(actor)):
                await self._catch_up(actor)
        except Exception as error:
            return error
        if not actor.is_lost:
            actor.state = State.SERVING
            self._announce()
            self._dispatcher.dispatch()
        return await actor.lost

    def _is_current(self, actor: Actor) -> bool:
        """Whether it has the weights that are sampled from, and none are on their way."""
        has_them = actor.weights is not None and actor.weights is self._weights
        return has_them and not self._is_syncing

    async def _catch_up(self, actor: Actor) -> None:
        """Waits for weights that are settled, and gives them to ``actor`` unless a sync did."""
        actor.state = State.WAITING
        self._announce()
        await self._until(
            lambda: actor.is_lost or (self._weights is not None and not self._is_syncing)
        )
        weights = self._weights
        if actor.is_lost or weights is None or actor.weights is weights:
            return
        actor.state = State.STARTING
        taken = await give(actor, weights, timeout_s=self._limits.sync_timeout_s)
        if taken.error is None:
            actor.weights = weights
        elif weights is self._weights:  # else a newer version came, and the file went meanwhile
            raise taken.error

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._change.wait()

    def _announce(self) -> None:
        """Lets everyone in `_until` look again."""
        self._change.set()
        self._change = asyncio.Event()

    async def _load(self, weights: Weights) -> None:
        if self._is_syncing:
            raise WeightSyncError(f"version {weights.version}: another sync is under way")
        self._is_syncing = True
        try:
            is_through = False
            while not is_through:  # where all that were up have died, by those that replace them
                await self._until(self._can_sync)
                if failure := self._dispatcher.failure:
                    if isinstance(self._first_cause, UserError):
                        raise self._first_cause
                    raise WeightSyncError(str(failure)) from self._first_cause
                self._is_fixed = weights.transfer is not None
                up = [actor for actor in self._dispatcher.actors if actor.is_up]
                is_through = await self._load_all(up, weights)
        finally:
            self._is_syncing = False
            self._announce()
            self._dispatcher.dispatch()

    def _can_sync(self) -> bool:
        """Whether a process is up; at the first time, whether none is still to come."""
        actors = self._dispatcher.actors
        is_settled = self._weights is not None or all(actor.is_up for actor in actors)
        has_failed = self._dispatcher.failure is not None
        return has_failed or (is_settled and any(actor.is_up for actor in actors))

    async def _load_all(self, actors: list[Actor], weights: Weights) -> bool:
        """All or nothing: only when the checks are through does anyone sample from ``weights``.

        False where every process died of something else before it had them.
        """
        for actor in actors:
            actor.state = State.LOADING
        taken = dict(
            zip(
                actors,
                await give_all(actors, weights, timeout_s=self._limits.sync_timeout_s),
                strict=True,
            )
        )
        wrong = next((one.error for one in taken.values() if one.is_wrong), None)
        good = [a for a, one in taken.items() if one.error is None and not a.is_lost]
        is_through = bool(good) and wrong is None
        if is_through:
            self._weights = weights
        for actor, one in taken.items():
            if is_through and actor in good:
                actor.weights = weights
                actor.state = State.SERVING
            elif not is_through and one.has_old and not actor.is_lost:
                actor.state = State.WAITING if actor.weights is None else State.SERVING
            else:  # it samples from what the others do not
                self._dispatcher.lose(actor, one.error or wrong or _lost_in_sync(actor))
        if wrong is not None:
            raise wrong
        if good:
            return True
        errors = [one.error for one in taken.values() if one.error]
        if weights.transfer is None and all(isinstance(one, ActorGoneError) for one in errors):
            self._announce()  # their keepers see that they are lost
            return False
        first = next(iter(errors), None)
        raise WeightSyncError(
            f"no generator took the weights of version {weights.version}: {in_words(first)}"
        ) from first

    async def _metrics(self) -> dict[str, float]:
        now = time.monotonic()
        window, self._window_start = now - self._window_start, now
        busy = sum(place.busy.take() for place in self._places)
        dispatcher = self._dispatcher
        found = {
            "rollout/actor_restarts": float(self._num_restarts),
            "rollout/actors_lost": float(dispatcher.num_lost),
            "rollout/retried_turns": float(dispatcher.num_retried),
            "fully_async/rollouter/idle_ratio": max(0.0, 1 - busy / (window * len(self._places))),
        }
        self._num_restarts = dispatcher.num_lost = dispatcher.num_retried = 0
        return found

    async def _close(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        self._dispatcher.stop(GeneratorError("the pool of generators was closed"))
        for actor in self._dispatcher.actors:
            actor.handle.kill()
        self._announce()
        await asyncio.gather(*self._keepers, return_exceptions=True)


def _lost_in_sync(actor: Actor) -> GeneratorError:
    return GeneratorError(f"{actor.name} was lost while it took new weights")
