"""Scores the chunks in this very process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlgym_llm.sandbox import Outcome, OutcomeStatus

if TYPE_CHECKING:
    from rlgym_llm.offline.worker import ChunkScorer

__all__ = ["InlineWorkers"]


class InlineWorkers:
    """One worker that is this process: nothing is started, and nothing is imported twice."""

    num_workers = 1

    def __init__(self) -> None:
        self._settings = ""
        self._scorer: ChunkScorer | None = None
        self._lock = threading.Lock()

    def begin(self, settings: str) -> None:
        """Keeps the settings for the first call."""
        self._settings = settings

    def call(self, request: Mapping[str, Any]) -> Outcome:
        """Scores; raises what a worker would have answered with."""
        with self._lock:
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
