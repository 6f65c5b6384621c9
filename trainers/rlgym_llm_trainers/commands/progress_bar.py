"""How far a command is: a bar on a terminal, nothing in a pipe; standard output is for results."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["NoBar", "ProgressBar", "open_bar"]


class NoBar:
    """Watches, and says nothing."""

    def advance(self, count: int, shown: str = "") -> None:
        """Counts ``count`` more; ``shown`` stands beside the number."""

    def close(self) -> None:
        """Ends what is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class ProgressBar(NoBar):
    """A bar up to ``total`` with the time that is left."""

    def __init__(self, name: str, total: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn(name),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task("", total=total)

    def advance(self, count: int, shown: str = "") -> None:
        """Moves the bar and renews what stands beside it."""
        self._progress.update(self._bar, advance=count, description=shown)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._progress.stop()


def open_bar(name: str, total: int) -> NoBar:
    """The bar where standard error is a terminal, else silence."""
    console = Console(stderr=True)
    return ProgressBar(name, total, console) if console.is_terminal else NoBar()
