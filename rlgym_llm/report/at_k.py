"""What more samples of a task are worth: pass@k and maj@k."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlgym_llm.report.numbers import percent
from rlgym_llm.report.svg import Plot, tag, text

__all__ = ["at_k_svg"]


def at_k_svg(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A line with its 95% band for each of ``{"pass": {"1": {mean, low, high, groups}}}``.

    k is on a logarithmic axis, whose ticks are the k that were measured.
    """
    ks = sorted({int(k) for curve in curves.values() for k in curve})
    low, high = math.log2(ks[0]), math.log2(ks[-1])
    values = [e for c in curves.values() for f in c.values() for e in (f["low"], f["high"])]
    known = [value for value in values if value is not None]
    floor = max(0.0, math.floor(10 * min(known) - 0.3) / 10)
    ceiling = min(1.0, math.ceil(10 * max(known) + 0.3) / 10)
    margin = 0.06 * (high - low)
    plot = Plot(
        x=(low - margin, high + margin),
        y=(floor, ceiling),
        title="pass@k and maj@k by number of samples",
        right=56,
    )
    plot.axes(
        "samples of a task, k",
        "tasks solved",
        x_ticks=[math.log2(k) for k in ks] if len(ks) <= 8 else None,
        x_text=lambda value: f"{round(2**value):,}",
        y_text=lambda value: f"{value:.0%}",
    )
    ends: list[float] = []
    for name, curve in curves.items():
        points = sorted((int(k), found) for k, found in curve.items())
        at = [(plot.at_x(math.log2(k)), found) for k, found in points]
        band = [(x, plot.at_y(_or(f["high"], f["mean"]))) for x, f in at]
        band += [(x, plot.at_y(_or(f["low"], f["mean"]))) for x, f in reversed(at)]
        line = [(x, plot.at_y(f["mean"])) for x, f in at]
        plot.add(tag("path", d=f"M{_path(band)}Z", class_=f"band {name}"))
        plot.add(tag("path", d=f"M{_path(line)}", class_=f"curve {name}"))
        for (x, y), (k, found) in zip(line, points, strict=True):
            title = f"{name}@{k}: {percent(found['mean'])}"
            if found["low"] is not None and found["high"] is not None:
                title += f" ({percent(found['low'])} to {percent(found['high'])})"
            title += f", {found['groups']:,} tasks"
            plot.add(tag("circle", tag("title", title), cx=x, cy=y, r=4, class_=f"knot {name}"))
        x, y = line[-1]
        while any(abs(y - other) < 13 for other in ends):
            y += 13
        ends.append(y)
        plot.add(text(f"{name}@k", x + 9, y + 4, "start", f"series {name}"))
    return plot.svg()


def _path(points: list[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _or(value: float | None, instead: float) -> float:
    return instead if value is None else value
