"""Stops a run whose rewards are broken, rather than learn from what is left."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

from rlgym_llm.errors import RewardError
from rlgym_llm.scores import FAILED, Score

__all__ = ["ErrorWatch"]

_WINDOW = 256
_MIN_SCORES = 32


class ErrorWatch:
    """Remembers how many of each component's recent scores failed; threads may share one.

    A component's rate is over this batch and the batches before it, back to 256 scores; of fewer
    than 32 it is taken as if there were so many, so that one bad row in the first group of eight
    does not end a run.
    """

    def __init__(self, max_error_rate: float) -> None:
        self.max_error_rate = max_error_rate
        self._recent: dict[str, _Recent] = {}
        self._lock = threading.Lock()

    def watch(self, scores: Mapping[str, Sequence[Score]]) -> None:
        """Takes one batch of the components that count; raises RewardError for the worst of them.

        Nothing is raised for a batch in which nothing failed.
        """
        worst = (self.max_error_rate, "", "")
        for name, found in scores.items():
            failed = len([score for score in found if score.status in FAILED])
            with self._lock:
                recent = self._recent.setdefault(name, _Recent())
                recent.take(len(found), failed)
                num_scores, num_failed = recent.num_scores, recent.num_failed
            if not failed:
                continue
            rate = num_failed / max(num_scores, _MIN_SCORES)
            if rate > worst[0]:
                worst = (rate, name, f"{num_failed} of its last {num_scores} scores")
        _, name, share = worst
        if name:
            example = next(score.error for score in scores[name] if score.status in FAILED)
            raise RewardError(
                f"reward {name!r} failed on {share}, more than max_error_rate "
                f"{self.max_error_rate:g} allows; for example: {example}"
            )


class _Recent:
    """Batches back to 256 scores, with their sums."""

    def __init__(self) -> None:
        self.batches: deque[tuple[int, int]] = deque()
        self.num_scores = self.num_failed = 0

    def take(self, num_scores: int, num_failed: int) -> None:
        self.batches.append((num_scores, num_failed))
        self.num_scores += num_scores
        self.num_failed += num_failed
        while self.num_scores - self.batches[0][0] >= _WINDOW:
            scores, failed = self.batches.popleft()
            self.num_scores -= scores
            self.num_failed -= failed
