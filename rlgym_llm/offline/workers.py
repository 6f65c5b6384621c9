"""Who scores the chunks: workers of their own, or this very process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rlgym_llm.offline.inline_workers import InlineWorkers
from rlgym_llm.offline.sandbox_workers import SandboxWorkers
from rlgym_llm.sandbox import Outcome

if TYPE_CHECKING:
    from rlgym_llm.rewards import Reward

__all__ = ["WorkerChoice", "Workers"]


class Workers(Protocol):
    """What scores chunks, requests as `ChunkScorer` takes them."""

    num_workers: int

    def begin(self, settings: str) -> None:
        """Gives the settings, as JSON; before the first call."""
        ...

    def call(self, request: Mapping[str, Any]) -> Outcome:
        """One request, from any thread."""
        ...

    def close(self) -> None:
        """Ends what is left; safe to call twice."""
        ...


class WorkerChoice:
    """The workers of a run: known at once, or where that is worth it once its rewards are.

    Few rows of rewards that are bounded (`Reward.is_bounded`) are scored before a worker would be
    ready, so this process scores them. Anything else is isolated.
    """

    def __init__(self, start: Callable[[], SandboxWorkers], *, may_stay: bool) -> None:
        self._start = start
        self._workers: Workers | None = None if may_stay else start()

    def workers(self, rewards: Iterable[Reward]) -> Workers:
        """Those that score these rewards."""
        if self._workers is None:
            is_bounded = all(reward.is_bounded for reward in rewards)
            self._workers = InlineWorkers() if is_bounded else self._start()
        return self._workers

    def close(self) -> None:
        """Ends the workers; safe to call twice."""
        if self._workers is not None:
            self._workers.close()
