"""A version of the policy on its way into processes: given to all of them, then checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlgym_llm.errors import WeightSyncError
from rlgym_llm_trainers.generators.ray_pool.handle import within
from rlgym_llm_trainers.generators.ray_pool.place import Actor
from rlgym_llm_trainers.generators.ray_pool.transfer import PoolTransfer

__all__ = ["Taken", "Weights", "give", "give_all"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """A version of the policy, in a file or on the learner's GPU, and how to see that it came."""

    version: int
    path: str | None = None
    """Of the file; every process takes it in by itself, at any time."""
    transfer: PoolTransfer | None = None
    """What sends them where there is no file, to all processes at once."""
    canary: tuple[tuple[int, ...], ...] = ()
    """What `check` wants scored."""
    check: Callable[[str, list[list[float]]], object] | None = None
    """``check(name, scores)`` raises WeightSyncError where these are not the learner's scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How it went with one process."""

    error: Exception | None = None
    """None where it has the new weights and they are right."""
    has_old: bool = False
    """Whether it said no, with its old weights in place."""
    is_wrong: bool = False
    """Whether it took them and scores otherwise than the learner."""


async def give(actor: Actor, weights: Weights, *, timeout_s: float) -> Taken:
    """Loads and checks; both together have ``timeout_s``."""
    (taken,) = await give_all([actor], weights, timeout_s=timeout_s)
    return taken


async def give_all(actors: Sequence[Actor], weights: Weights, *, timeout_s: float) -> list[Taken]:
    """Loads in all side by side, then checks all that took them; in the order of the actors."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    if (transfer := weights.transfer) is not None:
        try:
            await transfer.send(actors, weights.version, timeout_s=timeout_s)
        except WeightSyncError as error:
            return [Taken(error=error, has_old=not transfer.is_broken)] * len(actors)
    return list(await asyncio.gather(*(_give(actor, weights, deadline) for actor in actors)))


async def _give(actor: Actor, weights: Weights, deadline: float) -> Taken:
    now = asyncio.get_running_loop().time
    if weights.path is not None:
        try:
            await within(
                deadline - now(),
                actor.handle.load_weights(weights.path, weights.version),
                f"{actor.name} did not load the weights of version {weights.version}",
            )
        except Exception as error:
            return Taken(error=error, has_old=isinstance(error, WeightSyncError))
    if weights.check is None:
        return Taken()
    try:
        scores = await within(
            deadline - now(),
            actor.handle.score(weights.canary),
            f"{actor.name} did not score the canary",
        )
    except Exception as error:
        return Taken(error=error)
    try:
        weights.check(actor.name, scores)
    except WeightSyncError as error:
        return Taken(error=error, is_wrong=True)
    return Taken()
