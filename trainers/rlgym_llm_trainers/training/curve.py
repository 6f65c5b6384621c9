"""The learning curve of a run, from its metrics.jsonl: drawn in a terminal, saved as a PNG."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

__all__ = ["Curve", "draw_curve", "read_curve", "save_curve"]

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Named series of (step, value), in the order in which they are to be drawn."""

    title: str
    series: dict[str, Points]


def read_curve(metrics_path: Path, *, keys: Mapping[str, str], title: str) -> Curve:
    """The metrics ``{key: label}`` as series; one that no step of the file has is left out."""
    rows = [json.loads(line) for line in metrics_path.read_text(encoding="utf-8").splitlines()]
    series = {
        label: tuple((row["step"], row[key]) for row in rows if row.get(key) is not None)
        for key, label in keys.items()
    }
    return Curve(title=title, series={name: points for name, points in series.items() if points})


def draw_curve(curve: Curve, *, width: int = 78, height: int = 18) -> str | None:
    """The curve as lines of text without colour; None where plotext is not installed."""
    try:
        import plotext
    except ImportError:
        return None
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, height)
    plotext.title(curve.title)
    plotext.xlabel("step")
    for marker, (name, points) in zip(cycle("●○×+*#"), curve.series.items(), strict=False):
        steps, values = zip(*points, strict=True)
        plotext.plot(list(steps), list(values), label=name, marker=marker)
    drawing = plotext.uncolorize(plotext.build())
    plotext.clear_figure()
    return str(drawing)


def save_curve(curve: Curve, path: Path) -> bool:
    """Saves the curve as a PNG; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # no pyplot: it would pick a display and keep global state
    axes = figure.add_subplot()
    for name, points in curve.series.items():
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, marker="o", markersize=3, label=name)
    axes.set(title=curve.title, xlabel="step")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(path)
    return True
