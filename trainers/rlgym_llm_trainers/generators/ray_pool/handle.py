"""A process that samples, as the pool sees it, and what its failures mean."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rlgym_llm.errors import GeneratorError, RlgymError, describe, one_line
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.ray_pool.worker import TransferCall

__all__ = [
    "ActorGoneError",
    "ActorHandle",
    "DeadlineError",
    "cause_of_death",
    "in_words",
    "is_final",
    "within",
]

T = TypeVar("T")
_DETAIL = "Worker exit detail: "
_GUESSES = (" Some common causes", " There are some potential root causes")


class ActorGoneError(GeneratorError):
    """The process died, or cannot be reached any more."""


class DeadlineError(GeneratorError):
    """The process did not answer in time."""


class ActorHandle(Protocol):
    """One process. All calls are made on the pool's event loop and must not hold it up.

    Whatever they raise, ActorGoneError says that there is no point in asking this one again.
    """

    async def ready(self) -> Mapping[str, Any]:
        """What the process says of itself, once it can sample; raises why it never will."""
        ...

    async def sample(self, request: GenerateRequest) -> Completion:
        """The completion of one request; any number wait at once."""
        ...

    async def load_weights(self, path: str, version: int) -> Mapping[str, float]:
        """See `SamplingWorker.load_weights`."""
        ...

    async def transfer(self, call: TransferCall, info: Any) -> None:
        """See `TransferWorker.transfer`."""
        ...

    async def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """See `SamplingWorker.score`."""
        ...

    def kill(self) -> None:
        """Ends the process at once, whatever it does; safe to call twice."""
        ...


def is_final(error: BaseException) -> bool:
    """Whether trying again cannot help.

    So it is with a ValueError (a bad request, a bad setting: `UserError` is one) and with errors
    that are marked by an attribute ``is_final``.

    >>> is_final(ValueError("the prompt is empty")), is_final(GeneratorError("out of memory"))
    (True, False)
    """
    return isinstance(error, ValueError) or bool(getattr(error, "is_final", False))


def in_words(error: BaseException | None) -> str:
    """An error in a line, with its kind where that is none of this project's.

    >>> in_words(KeyError("x")), in_words(GeneratorError("out of memory"))
    ("KeyError: 'x'", 'out of memory')
    """
    return one_line(error) if isinstance(error, RlgymError) else describe(error)


def cause_of_death(told: str) -> str:
    r"""Why a process died, out of the many lines that Ray tells: no names, ids and guesses.

    >>> cause_of_death("The actor died.\n\tpid: 7\nIt was killed by `ray.kill`.")
    'It was killed by `ray.kill`.'
    """
    first, *more = [line for line in told.splitlines() if line[:1].strip()] or [""]
    cause = one_line(" ".join(more or [first]))
    cause = cause.partition(_DETAIL)[2] or cause
    for guesses in _GUESSES:
        cause = cause.partition(guesses)[0]
    if "unexpectedly exits with a connection error" in cause:  # all that Ray knows of a kill
        return "its process was killed or crashed; the system's log tells whether memory ran out"
    return textwrap.shorten(cause, 200, placeholder=" ...")


async def within(seconds: float | None, work: Awaitable[T], what: str) -> T:
    """What ``work`` gives; DeadlineError, with ``what`` failed, where it takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise DeadlineError(f"{what} within {seconds:g} s") from None
        raise
