"""A process that samples, as the pool sees it, and what its failures mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rlgym_llm.errors import GeneratorError, RlgymError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.ray_pool.worker import TransferCall

__all__ = ["ActorGoneError", "ActorHandle", "DeadlineError", "is_final", "one_line", "within"]

T = TypeVar("T")


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


def one_line(error: BaseException | None) -> str:
    """An error in a line, with its kind where that is none of this project's.

    >>> one_line(KeyError("x")), one_line(GeneratorError("out of memory"))
    ("KeyError: 'x'", 'out of memory')
    """
    text = " ".join(str(error).split())
    if isinstance(error, RlgymError) and text:
        return text
    return f"{type(error).__name__}: {text}".removesuffix(": ")


async def within(seconds: float | None, work: Awaitable[T], what: str) -> T:
    """What ``work`` gives; DeadlineError, with ``what`` failed, where it takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise DeadlineError(f"{what} within {seconds:g} s") from None
        raise
