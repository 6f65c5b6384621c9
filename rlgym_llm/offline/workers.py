"""Who scores the chunks: workers of their own, or this very process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rlgym_llm.offline.early_workers import EarlyWorkers
from rlgym_llm.sandbox import Outcome, OutcomeStatus

if TYPE_CHECKING:
    from rlgym_llm.offline.worker import ChunkScorer
    from rlgym_llm.rewards import Reward

__all__ = ["OwnProcess", "WorkerChoice", "Workers"]


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


class OwnProcess:
    """One worker that is this process: nothing is started, and nothing is imported twice."""

    num_workers = 1

    def __init__(self) -> None:
        self._settings = ""
        self._scorer: ChunkScorer | None = None

    def begin(self, settings: str) -> None:
        """Keeps the settings for the first call."""
        self._settings = settings

    def call(self, request: Mapping[str, Any]) -> Outcome:
        """Scores; raises what a worker would have answered with."""
        if self._scorer is None:
            from rlgym_llm.offline.settings import OfflineSettings
            from rlgym_llm.offline.worker import ChunkScorer

            self._scorer = ChunkScorer(OfflineSettings.from_json(self._settings), lambda: None)
        return Outcome(status=OutcomeStatus.OK, value=self._scorer(request))

    def close(self) -> None:
        """Closes the rewards."""
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None


class WorkerChoice:
    """The workers of a run: known at once, or where that is worth it once its rewards are.

    Few rows of rewards that are bounded (`Reward.is_bounded`) are scored before a worker would be
    ready, so this process scores them. Anything else is isolated.
    """

    def __init__(self, start: Callable[[], EarlyWorkers], *, may_stay: bool) -> None:
        self._start = start
        self._workers: Workers | None = None if may_stay else start()

    def workers(self, rewards: Iterable[Reward]) -> Workers:
        """Those that score these rewards."""
        if self._workers is None:
            is_bounded = all(reward.is_bounded for reward in rewards)
            self._workers = OwnProcess() if is_bounded else self._start()
        return self._workers

    def close(self) -> None:
        """Ends the workers; safe to call twice."""
        if self._workers is not None:
            self._workers.close()
