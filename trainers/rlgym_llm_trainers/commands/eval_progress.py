"""What the bar of an evaluation shows beside the number of rollouts."""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm_trainers.commands.eval_rows import EvalRow

__all__ = ["AccuracySoFar"]


class AccuracySoFar:
    """The mean of one component over the rollouts that have it.

    Of scores 1, 0 and none: ``accuracy 50.0%``.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._sum, self._count = 0.0, 0

    def add(self, rows: Sequence[EvalRow]) -> str:
        """Counts further rollouts; the words to show, empty as long as none has the score."""
        scores = [row.raw.get(self._name) for row in rows] if self._name else []
        found = [score for score in scores if score is not None]
        self._sum, self._count = self._sum + sum(found), self._count + len(found)
        return f"accuracy {self._sum / self._count:.1%}" if self._count else ""
