"""Rank 0 leads: what is called on its learner is called on every rank's, with the same arguments.

rank 0: learner.update(samples) --broadcast--> rank 1: serve({"actor": its learner}, ranks)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rlgym_llm.errors import RlgymError
from rlgym_llm_trainers.learner.ranks import Ranks, is_lost_rank

__all__ = ["Led", "led", "serve"]

P = ParamSpec("P")
R = TypeVar("R")


class Led(Protocol):
    """What exists on every rank and works in step."""

    role: str
    """By which the ranks know it, ``actor`` or ``critic``."""
    ranks: Ranks


L = TypeVar("L", bound=Led)


@dataclass(frozen=True, slots=True)
class _Call:
    role: str
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def led(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Makes rank 0's call of a method a call on every rank, each of which must be in `serve`.

    Arguments are plain data. Raises RlgymError where another rank has ended, and where a call
    before this one broke off on rank 0 alone: the others then wait in its middle, and are let go.
    """

    @functools.wraps(method)
    def call(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.ranks.is_first:
            return method(self, *args, **kwargs)
        if self.ranks.is_closed:
            raise RlgymError("the ranks are not in step any more")
        try:
            self.ranks.broadcast(_Call(self.role, method.__name__, args, kwargs))
            return method(self, *args, **kwargs)
        except RlgymError:
            raise  # on all ranks alike
        except BaseException as error:
            self.ranks.close()
            if is_lost_rank(error):
                raise RlgymError(
                    "another rank has ended; what it said stands above, torchrun's report below"
                ) from error
            raise

    return call


def serve(members: Mapping[str, Any], ranks: Ranks) -> None:
    """Does what rank 0 does, call by call, until that broadcasts None.

    ``members`` are this rank's by their roles. What ends a call on purpose ends it on all ranks
    alike (it comes from what all of them know), and rank 0 says it: here the next call is waited
    for. Any other error is this rank's own, and rises.
    """
    while (call := ranks.broadcast()) is not None:
        try:
            getattr(members[call.role], call.method)(*call.args, **call.kwargs)
        except RlgymError:
            continue
