"""What a person sees of a run: a live table on a terminal, plain lines in a pipe."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["LiveView", "PlainView", "View", "open_view"]

Metrics = Mapping[str, float | None]

_COLUMNS = {
    "critic/rewards/mean": "reward",
    "response_length/mean": "length",
    "response_length/clip_ratio": "clipped",
    "actor/kl_loss": "kl",
    "actor/pg_clipfrac": "clipfrac",
    "actor/grad_norm": "grad",
    "frac_reward_zero_std": "flat groups",
    "timing_s/step": "s/step",
}
"""Metrics of a step that the table shows, where the step has them."""

_ROWS = 12
"""How many of the last steps the live table keeps in sight."""


class View(Protocol):
    """Shows a run as it goes."""

    def start(self, total_steps: int) -> None:
        """Says how many steps there will be, once that is known."""
        ...

    def note(self, text: str) -> None:
        """Says one thing, for good."""
        ...

    def phase(self, text: str) -> None:
        """Says what is being done right now; forgotten as soon as something else is done."""
        ...

    def step(self, step: int, metrics: Metrics) -> None:
        """Shows a finished step, its validation included."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainView:
    """One line a step on standard output, without colours or cursor movement.

    With ``shows_steps=False`` only notes are printed.
    """

    def __init__(self, *, shows_steps: bool = True) -> None:
        self._shows_steps = shows_steps
        self._total = 0

    def start(self, total_steps: int) -> None:
        """Remembers the number of steps."""
        self._total = total_steps

    def note(self, text: str) -> None:
        """Prints the text."""
        print(text, flush=True)

    def phase(self, text: str) -> None:
        """Nothing: a pipe wants results."""

    def step(self, step: int, metrics: Metrics) -> None:
        """Prints ``step 3/60  reward 0.412  length 38.1 ...``."""
        cells = [f"{name} {value}" for name, value in _cells(metrics).items()]
        if cells and self._shows_steps:
            print(f"step {step}/{self._total}  " + "  ".join(cells), flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class LiveView:
    """The last steps as a table over a progress bar with the time that is left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: deque[tuple[int, dict[str, str]]] = deque(maxlen=_ROWS)
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task("starting", total=None)
        self._live = Live(self._render(), console=console, refresh_per_second=8)

    def start(self, total_steps: int) -> None:
        """Gives the bar its length."""
        self._progress.update(self._bar, total=total_steps)

    def note(self, text: str) -> None:
        """Prints the text above the table."""
        self._console.print(text, highlight=False, markup=False)

    def phase(self, text: str) -> None:
        """Names the phase beside the bar."""
        self._progress.update(self._bar, description=text)

    def step(self, step: int, metrics: Metrics) -> None:
        """Adds the step's row and moves the bar."""
        self._rows.append((step, _cells(metrics)))
        self._progress.update(self._bar, completed=step)
        self._live.update(self._render())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def _render(self) -> Group:
        names = list(dict.fromkeys(name for _, cells in self._rows for name in cells))
        table = Table("step", *names, header_style="bold")
        for step, cells in self._rows:
            table.add_row(str(step), *(cells.get(name, "") for name in names))
        return Group(table, self._progress) if self._rows else Group(self._progress)


def open_view(*, shows_steps: bool = True) -> View:
    """The live view on a terminal, the plain one anywhere else."""
    console = Console()
    if console.is_terminal and shows_steps:
        return LiveView(console)
    return PlainView(shows_steps=shows_steps)


def _cells(metrics: Metrics) -> dict[str, str]:
    """The figures worth a column, shortened; components and validation by their own names."""
    cells = {}
    for key, value in metrics.items():
        if key.startswith("val-core/") and value is not None:
            name = key.split("/")[-2]
            cells[f"val {name}"] = f"{value:.1%}" if name == "acc" else f"{value:.3f}"
    for key, value in metrics.items():
        if key.startswith("rewards/") and key.endswith("/mean") and value is not None:
            cells[key.split("/")[1]] = f"{value:.3f}"
    for key, name in _COLUMNS.items():
        value = metrics.get(key)
        if value is not None:
            cells[name] = f"{value:.3g}"
    return cells
