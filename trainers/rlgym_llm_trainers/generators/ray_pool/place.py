"""The pool's bookkeeping as data: requests, places, the process that fills a place, the limits."""

from __future__ import annotations

import asyncio
import enum
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.busy_time import BusyTime
from rlgym_llm_trainers.generators.ray_pool.handle import ActorHandle
from rlgym_llm_trainers.generators.settle import settle

if TYPE_CHECKING:
    from rlgym_llm_trainers.generators.ray_pool.weights import Weights

__all__ = ["Actor", "Job", "Place", "PoolLimits", "State"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much at once, how long, how often."""

    max_in_flight: int
    """Requests that one process has at a time."""
    max_retries: int = 2
    """How often a request is sampled again."""
    max_restarts: int = 4
    """Replacements of a process in a row none of which sampled anything."""
    generate_timeout_s: float | None = 600.0
    """Of one request, from when it is handed to a process."""
    start_timeout_s: float = 600.0
    sync_timeout_s: float = 600.0
    evict_after: int = 2
    """A process that answers with errors this often in a row is replaced, though it lives: no more
    often than ``max_retries``, so that a request's last try is by another one."""


@dataclass(slots=True, eq=False)
class Job:
    """A request on its way, told apart by identity: two may be equal."""

    request: GenerateRequest
    future: Future[Completion] = field(default_factory=Future)
    failed_on: list[str] = field(default_factory=list)
    """Names of the processes that had it in vain."""
    first_error: Exception | None = None

    def settle(self, outcome: Completion | Exception) -> None:
        """Ends it, once: what comes later, or after it was cancelled, is dropped."""
        settle(self.future, outcome)


@dataclass(slots=True, eq=False)
class Place:
    """One of the ``num_actors`` places, filled by one process after another."""

    index: int
    actor: Actor | None = None
    """None once it is not filled again."""
    num_restarts: int = 0
    """Replacements since a process of this place has sampled something."""
    cause: Exception | None = None
    """Why the first of them was needed."""
    busy: BusyTime = field(default_factory=BusyTime)
    """Holds the requests that are in flight."""


class State(enum.Enum):
    """What a process is doing."""

    STARTING = enum.auto()
    """Not ready, or taking the current weights for the first time."""
    WAITING = enum.auto()
    """Ready, for weights."""
    SERVING = enum.auto()
    LOADING = enum.auto()
    """New weights, in a sync; what is in flight goes on."""
    LOST = enum.auto()


@dataclass(slots=True, eq=False)
class Actor:
    """A process in its place. Made on the pool's event loop."""

    name: str
    place: Place
    handle: ActorHandle
    state: State = State.STARTING
    was_ready: bool = False
    """Whether it has ever been."""
    weights: Weights | None = None
    """What it samples from; None until it was given some."""
    in_flight: dict[Job, asyncio.Task[None]] = field(default_factory=dict)
    num_failed: int = 0
    """Errors it answered with in a row."""
    lost: asyncio.Future[Exception] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """What ended it."""

    @property
    def is_lost(self) -> bool:
        """Whether it is out of service for good."""
        return self.lost.done()

    @property
    def is_up(self) -> bool:
        """Whether it can take weights now."""
        return self.state in (State.WAITING, State.SERVING)

    def has_sampled(self) -> None:
        """Notes a success, which ends every row of failures."""
        self.num_failed = self.place.num_restarts = 0
        self.place.cause = None

    def take_off(self, job: Job) -> None:
        """Strikes a request from what is in flight."""
        del self.in_flight[job]
        self.place.busy.end()
