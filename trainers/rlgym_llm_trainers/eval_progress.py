"""How far an evaluation is: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rich.console import Console

from rlgym_llm_trainers.eval_rows import EvalRow
from rlgym_llm_trainers.progress_bar import ProgressBar

__all__ = ["BarProgress", "SilentProgress", "open_progress"]


class SilentProgress:
    """Watches the rollouts as they come in, and says nothing."""

    def advance(self, rows: Sequence[EvalRow]) -> None:
        """Counts further rollouts."""

    def close(self) -> None:
        """Ends what is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class BarProgress(SilentProgress):
    """A bar over the rollouts, with the accuracy so far and the time that is left."""

    def __init__(self, total: int, accuracy: str | None, console: Console) -> None:
        self._accuracy = accuracy
        self._sum, self._count = 0.0, 0
        self._bar = ProgressBar("rollouts", total, console)

    def advance(self, rows: Sequence[EvalRow]) -> None:
        """Moves the bar and renews the accuracy."""
        scores = [row.raw.get(self._accuracy) for row in rows] if self._accuracy else []
        found = [score for score in scores if score is not None]
        self._sum, self._count = self._sum + sum(found), self._count + len(found)
        shown = f"accuracy {self._sum / self._count:.1%}" if self._count else ""
        self._bar.advance(len(rows), shown)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.close()


def open_progress(total: int, accuracy: str | None) -> SilentProgress:
    """The bar where standard error is a terminal, else silence; standard output is for results."""
    console = Console(stderr=True)
    return BarProgress(total, accuracy, console) if console.is_terminal else SilentProgress()
