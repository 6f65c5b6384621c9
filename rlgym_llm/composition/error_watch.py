"""Stops a run whose rewards are broken, rather than learn from what is left."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from rlgym_llm.errors import RewardError
from rlgym_llm.scores import FAILED, Score

__all__ = ["ErrorWatch"]

_WINDOW = 256
_MIN_SCORES = 32


class ErrorWatch:
    """Remembers how many of each component's recent scores failed.

    A component's rate is over this batch and the batches before it, back to 256 scores; of fewer
    than 32 it is taken as if there were so many, so that one bad row in the first group of eight
    does not end a run.
    """

    def __init__(self, max_error_rate: float) -> None:
        self.max_error_rate = max_error_rate
        self._recent: dict[str, deque[tuple[int, int]]] = defaultdict(deque)

    def watch(self, scores: Mapping[str, Sequence[Score]]) -> None:
        """Takes one batch of the components that count; raises RewardError for the worst of them.

        Nothing is raised for a batch in which nothing failed.
        """
        worst = (self.max_error_rate, "", "")
        for name, found in scores.items():
            recent = self._recent[name]
            recent.append((len(found), sum(score.status in FAILED for score in found)))
            while sum(count for count, _ in recent) - recent[0][0] >= _WINDOW:
                recent.popleft()
            num_scores, num_failed = map(sum, zip(*recent, strict=True))
            rate = num_failed / max(num_scores, _MIN_SCORES)
            if rate > worst[0] and recent[-1][1] > 0:
                worst = (rate, name, f"{num_failed} of its last {num_scores} scores")
        _, name, share = worst
        if name:
            example = next(score.error for score in scores[name] if score.status in FAILED)
            raise RewardError(
                f"reward {name!r} failed on {share}, more than max_error_rate "
                f"{self.max_error_rate:g} allows; for example: {example}"
            )
