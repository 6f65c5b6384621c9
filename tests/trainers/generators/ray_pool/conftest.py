"""Processes that are none: they answer as a test says, so that the pool is tested without Ray."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from rlgym_llm_trainers.generators.ray_pool.handle import ActorGoneError
from rlgym_llm_trainers.generators.ray_pool.place import PoolLimits
from rlgym_llm_trainers.generators.ray_pool.pool import ActorPool
from rlgym_llm_trainers.generators.ray_pool.weights import Weights

from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.types import Completion

PATIENCE_S = 20.0


@dataclass(eq=False)
class Call:
    """Something a process was asked and has not answered."""

    actor: FakeActor
    what: Any
    answer: Future[Any] = field(default_factory=Future)

    def says(self, request=None):
        """Answers a request with its own prompt ids."""
        self.answer.set_result(self.actor.completion(request or self.what))

    def fails(self, error):
        self.answer.set_exception(error)


class FakeActor:
    """A handle whose process is the test: it answers at once, or where ``holds`` says, later."""

    def __init__(self, world, name, place):
        self.world, self.name, self.place = world, name, place
        self.version = None
        self.is_killed = False
        self.events = []
        """What it was asked, in order: ("load", version), ("score",), ("sample", prompt ids), and
        of a transfer ("start", None) and the like."""
        self.most_in_flight = self._in_flight = 0

    def completion(self, request):
        ids = request.prompt_token_ids
        return Completion(
            text="",
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            version_spans=((0, len(ids), self.version),),
        )

    async def ready(self):
        await self._do("ready", None)
        return {"pid": 0}

    async def sample(self, request):
        self.events.append(("sample", request.prompt_token_ids))
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            return await self._do("sample", request) or self.completion(request)
        finally:
            self._in_flight -= 1

    async def load_weights(self, path, version):
        self.events.append(("load", version))
        await self._do("load", (path, version))
        self.version = version
        return {}

    async def transfer(self, call, info):
        self.events.append((call, info))
        await self._do(call, info)
        if call == "finish":
            self.version = int(info)

    async def score(self, sequences):
        self.events.append(("score",))
        return await self._do("score", sequences) or [[float(self.version)]]

    def kill(self):
        self.is_killed = True

    async def _do(self, kind, what):
        act = self.world.acts.get(kind)
        answer = act(self, what) if act is not None else None
        return await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer


class World:
    """Makes pools of fake processes; ``acts[kind](actor, what)`` returns, raises or holds."""

    def __init__(self):
        self.actors = []
        self.acts: dict[str, Callable[[FakeActor, Any], Any]] = {}
        self.held: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.pools = []

    def pool(self, num_actors=2, *, version=0, **limits):
        """A pool that has its first weights, unless ``version`` is None."""
        limits = PoolLimits(**{"max_in_flight": 4, **limits})
        pool = ActorPool(self.make, num_actors=num_actors, limits=limits)
        self.pools.append(pool)
        if version is not None:
            pool.load(weights(version))
        return pool

    def make(self, name, place):
        actor = FakeActor(self, name, place)
        self.actors.append(actor)
        return actor

    def actor(self, name):
        (found,) = (actor for actor in self.actors if actor.name == name)
        return found

    def hold(self, actor, what):
        """An act: the test answers, through `next_held`."""
        call = Call(actor, what)
        self.held.put(call)
        return call.answer

    def hold_only(self, name):
        """An act that holds for one process and lets the others answer at once."""
        return lambda actor, what: self.hold(actor, what) if actor.name == name else None

    def next_held(self):
        return self.held.get(timeout=PATIENCE_S)

    def next_helds(self, number):
        return [self.next_held() for _ in range(number)]

    def samples(self):
        """How often each prompt was handed to a process."""
        asked = (event for actor in self.actors for event in actor.events)
        return Counter(event[1] for event in asked if event[0] == "sample")


def weights(version, **more):
    return Weights(path=f"v{version}", version=version, **more)


def request(*ids, seed=0):
    return GenerateRequest(prompt_token_ids=ids, params=SamplingParams(max_new_tokens=8), seed=seed)


def submit_at_once(pool, requests):
    """Their futures; the pool hands all of them out before any process can answer one."""
    all_are_there = threading.Event()
    pool._loop.call_soon_threadsafe(all_are_there.wait)
    futures = [pool.submit(request) for request in requests]
    all_are_there.set()
    return futures


def results(futures):
    return [future.result(timeout=PATIENCE_S) for future in futures]


def fail_for(name, error):
    """An act that raises for one process."""

    def act(actor, what):
        if actor.name == name:
            raise error

    return act


def gone(name="actor-0"):
    return ActorGoneError(f"{name} is gone: killed")


@pytest.fixture
def world():
    made = World()
    yield made
    for pool in made.pools:
        pool.close()


@pytest.fixture
def say():
    """The small words of these tests, by name: conftest cannot be imported."""

    class Say:
        pass

    for function in (weights, request, submit_at_once, results, fail_for, gone):
        setattr(Say, function.__name__, staticmethod(function))
    return Say
