"""A worker in a Ray actor, and the handle through which the pool talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rlgym_llm.errors import GeneratorError, UserError, WeightSyncError, one_line
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.ray_pool.binding import bind_process
from rlgym_llm_trainers.generators.ray_pool.handle import ActorGoneError, cause_of_death
from rlgym_llm_trainers.generators.ray_pool.worker import (
    SamplingWorker,
    TransferCall,
    TransferWorker,
    WorkerSpec,
    open_worker,
)

__all__ = ["ActorResources", "RayHandle", "SamplingActor", "start_actor"]

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class SamplingActor:
    """What runs in the process: a worker, asked from outside. Its errors cross as plain ones."""

    def __init__(self, spec: WorkerSpec, cores: Sequence[int] = ()) -> None:
        """``cores`` is what the process is kept on, before anything starts threads; () is all."""
        if cores:
            bind_process(cores)
        self._worker: SamplingWorker | None = None
        self._failure: Exception | None = None
        try:
            self._worker = open_worker(spec)
        except Exception as error:  # told by `ready`: an actor that fails here is only "dead"
            self._failure = _plain(error)

    async def ready(self) -> dict[str, Any]:
        """Process id and, where Ray gave one, actor id. Raises what kept the worker away."""
        import ray

        self._open()
        return {"pid": os.getpid(), "actor_id": ray.get_runtime_context().get_actor_id()}

    async def sample(self, request: GenerateRequest) -> Completion:
        """See `SamplingWorker.submit`."""
        submitted = self._open().submit(request)
        return await _crossing(asyncio.wrap_future(submitted))

    async def load_weights(self, path: str, version: int) -> dict[str, float]:
        """See `SamplingWorker.load_weights`."""
        load = self._open().load_weights
        return dict(await _crossing(asyncio.to_thread(load, path, version)))

    async def transfer(self, call: TransferCall, info: Any) -> None:
        """See `TransferWorker.transfer`."""
        worker = cast(TransferWorker, self._open())
        await _crossing(asyncio.to_thread(worker.transfer, call, info))

    async def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """See `SamplingWorker.score`."""
        return await _crossing(asyncio.to_thread(self._open().score, sequences))

    async def close(self) -> None:
        """Ends the worker; the process goes on."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)

    def _open(self) -> SamplingWorker:
        if self._failure is not None:
            raise self._failure
        assert self._worker is not None, "it was opened or failed"
        return self._worker


async def _crossing(work: Awaitable[T]) -> T:
    try:
        return await work
    except Exception as error:
        raise _plain(error) from None


def _plain(error: Exception) -> Exception:
    """The error as one that every process can unpickle, its kind kept as far as the pool asks."""
    text = one_line(error)
    for kind in (UserError, WeightSyncError, GeneratorError):
        if isinstance(error, kind):
            plain: Exception = kind(text)
            break
    else:
        text = f"{type(error).__name__}: {text}"
        plain = ValueError(text) if isinstance(error, ValueError) else GeneratorError(text)
    if getattr(error, "is_final", False):
        plain.is_final = True  # type: ignore[attr-defined]
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorResources:
    """What each process gets."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    max_concurrency: int = 1000
    """Calls that wait in it at a time."""
    cores: tuple[int, ...] = ()
    """Of this machine, shared out by place; empty where that is left to the system."""
    binds: bool = False
    """Whether a process is kept on its share of them."""

    @property
    def num_threads(self) -> int:
        """Whole cores, at least one."""
        return max(1, math.floor(self.num_cpus))

    def own_cores(self, place: int) -> tuple[int, ...]:
        """The share of this place, as many as it has threads; () where there are not as many left.

        >>> ActorResources(num_cpus=2, cores=(0, 1, 4, 5, 6)).own_cores(1)
        (4, 5)
        """
        first = place * self.num_threads
        cores = self.cores[first : first + self.num_threads]
        return cores if len(cores) == self.num_threads else ()

    def env_vars(self, place: int) -> dict[str, str]:
        """Environment of the process in this place.

        >>> ActorResources(num_cpus=2, cores=(0, 1, 2, 3)).env_vars(1)["VLLM_CPU_OMP_THREADS_BIND"]
        '2,3'
        """
        cores = ",".join(map(str, self.own_cores(place)))
        return {
            "OMP_NUM_THREADS": str(self.num_threads),
            # For engines that start processes of their own; within this one vLLM binds nothing.
            "VLLM_CPU_OMP_THREADS_BIND": cores or "nobind",
        }


class RayHandle:
    """An `ActorHandle` over a Ray actor; Ray's errors become the pool's."""

    def __init__(self, actor: Any, name: str) -> None:
        self._actor = actor
        self._name = name
        self.pid: int | None = None
        """Of the process, once it is ready."""

    async def ready(self) -> Mapping[str, Any]:
        """See `ActorHandle`."""
        about: dict[str, Any] = await self._answer(self._actor.ready.remote())
        self.pid = about["pid"]
        return about

    async def sample(self, request: GenerateRequest) -> Completion:
        """See `ActorHandle`."""
        completion: Completion = await self._answer(self._actor.sample.remote(request))
        return completion

    async def load_weights(self, path: str, version: int) -> Mapping[str, float]:
        """See `ActorHandle`."""
        metrics: dict[str, float] = await self._answer(
            self._actor.load_weights.remote(path, version)
        )
        return metrics

    async def transfer(self, call: TransferCall, info: Any) -> None:
        """See `ActorHandle`."""
        await self._answer(self._actor.transfer.remote(call, info))

    async def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """See `ActorHandle`."""
        scores: list[list[float]] = await self._answer(self._actor.score.remote(sequences))
        return scores

    def kill(self) -> None:
        """See `ActorHandle`."""
        import ray

        with contextlib.suppress(Exception):  # it is gone already, or Ray itself is
            ray.kill(self._actor, no_restart=True)

    async def _answer(self, reference: Awaitable[Any]) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await reference
        except RayTaskError as error:  # raised by the actor's own code
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise cause from None
        except RayError as error:  # the actor, its node or the way to it
            _LOG.debug("%s: %s", self._name, error)
            pid = f" (pid {self.pid})" if self.pid is not None else ""
            reason = cause_of_death(str(error))
            raise ActorGoneError(f"{self._name}{pid} is gone: {reason}") from None


def start_actor(spec: WorkerSpec, name: str, place: int, resources: ActorResources) -> RayHandle:
    """Starts a process and returns at once; `RayHandle.ready` tells when it can sample."""
    import ray

    actor = (
        ray.remote(SamplingActor)
        .options(
            num_cpus=resources.num_cpus,
            num_gpus=resources.num_gpus,
            max_concurrency=resources.max_concurrency,
            max_restarts=0,  # the pool replaces: a new process needs the current weights first
            max_task_retries=0,
            runtime_env={"env_vars": resources.env_vars(place)},
        )
        .remote(spec, resources.own_cores(place) if resources.binds else ())
    )
    return RayHandle(actor, name)
