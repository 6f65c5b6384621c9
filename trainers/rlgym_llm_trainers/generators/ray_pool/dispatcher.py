"""Requests to processes: one queue, whoever has most room takes the next, what failed goes back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from rlgym_llm.errors import GeneratorError
from rlgym_llm_trainers.generators.ray_pool.handle import (
    ActorGoneError,
    DeadlineError,
    in_words,
    is_final,
    within,
)
from rlgym_llm_trainers.generators.ray_pool.place import Actor, Job, Place, PoolLimits, State

__all__ = ["Dispatcher"]


class Dispatcher:
    """Gives requests to the processes of ``places``; all its methods belong to one event loop."""

    def __init__(self, places: Sequence[Place], limits: PoolLimits) -> None:
        self._places = places
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self.failure: GeneratorError | None = None
        """Why nothing is sampled any more."""
        self.num_retried = 0
        self.num_lost = 0

    @property
    def actors(self) -> list[Actor]:
        """The processes that there are, whatever they do."""
        return [place.actor for place in self._places if place.actor is not None]

    def add(self, job: Job) -> None:
        """Takes a request in."""
        if self.failure is not None:
            job.settle(self.failure)
        else:
            self._waiting.append(job)
            self.dispatch()

    def dispatch(self) -> None:
        """Hands out what waits, first come, first served, while there is room."""
        held = []
        while self._waiting and any(map(self._has_room, self.actors)):
            job = self._waiting.popleft()
            if job.future.done():  # cancelled
                continue
            if (actor := self._choose(job)) is None:
                held.append(job)
                continue
            actor.place.busy.begin()
            task = asyncio.get_running_loop().create_task(self._sample(job, actor))
            actor.in_flight[job] = task
        self._waiting.extendleft(reversed(held))

    def lose(self, actor: Actor, cause: Exception) -> None:
        """Takes a process out of service; its turns go back. A second time does nothing."""
        if actor.is_lost:
            return
        actor.lost.set_result(cause)
        actor.state = State.LOST
        self.num_lost += 1
        for job, task in list(actor.in_flight.items()):
            task.cancel()
            actor.take_off(job)
            self._retry(job, actor, cause)
        actor.handle.kill()
        self.dispatch()

    def stop(self, failure: GeneratorError) -> None:
        """Fails all that waits or is in flight, and all that is still to come."""
        self.failure = failure
        for actor in self.actors:
            for job, task in actor.in_flight.items():
                task.cancel()
                job.settle(failure)
        while self._waiting:
            self._waiting.popleft().settle(failure)

    def _has_room(self, actor: Actor) -> bool:
        has_room = len(actor.in_flight) < self._limits.max_in_flight
        return actor.state is State.SERVING and has_room

    def _choose(self, job: Job) -> Actor | None:
        """The one with most room; for a retry one that has not failed, though it take a while.

        Only where every process has failed with the request does it go to such a one again.
        """
        actors = self.actors
        actors = [one for one in actors if one.name not in job.failed_on] or actors
        free = filter(self._has_room, actors)
        return min(free, key=lambda actor: len(actor.in_flight), default=None)

    async def _sample(self, job: Job, actor: Actor) -> None:
        try:
            completion = await within(
                self._limits.generate_timeout_s,
                actor.handle.sample(job.request),
                f"{actor.name} did not sample a turn",
            )
            completion = replace(completion, sampled_by=actor.name)
        except Exception as error:
            actor.take_off(job)
            if is_final(error):
                job.settle(_caused(f"a turn cannot be sampled: {in_words(error)}", error))
            else:
                self._retry(job, actor, error)
                self._blame(actor, error)
        else:
            actor.take_off(job)
            actor.has_sampled()
            job.settle(completion)
        self.dispatch()

    def _retry(self, job: Job, actor: Actor, error: Exception) -> None:
        job.failed_on.append(actor.name)
        job.first_error = job.first_error or error
        if len(job.failed_on) <= self._limits.max_retries:
            self.num_retried += 1
            # Behind the others: they show by then whether this process fails with everything.
            self._waiting.append(job)
            return
        first = job.first_error
        attempts = f"{len(job.failed_on)} attempts ({', '.join(job.failed_on)})"
        job.settle(
            _caused(f"a turn was not sampled in {attempts}; the first: {in_words(first)}", first)
        )

    def _blame(self, actor: Actor, error: Exception) -> None:
        """Loses a process that is gone or late, and one that only ever answers with errors."""
        actor.num_failed += 1
        if isinstance(error, ActorGoneError | DeadlineError):
            self.lose(actor, error)
        elif actor.num_failed >= self._limits.evict_after:
            what = f"{actor.name} failed {actor.num_failed} times in a row: {in_words(error)}"
            self.lose(actor, _caused(what, error))


def _caused(message: str, cause: Exception) -> GeneratorError:
    error = GeneratorError(message)
    error.__cause__ = cause
    return error
