"""How the values of one score are spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rlgym_llm.report.numbers import percent, round_ticks, short
from rlgym_llm.report.svg import Plot, margin_for, tag

__all__ = ["Bar", "bars", "histogram_svg"]

_MOST_SINGLE = 12
_WIDEST = 34.0
_LABEL = 40.0


class Bar(NamedTuple):
    """So many values in [low, high]; low equals high where they are all the same."""

    low: float
    high: float
    num_rows: int


def bars(histogram: Mapping[str, Any], sample: Sequence[float]) -> list[Bar]:
    """The bins of the summary's histogram that hold something.

    Where these are few and the sample knows one value only in each, they stand for these values:
    0 and 1 rather than [0, 0.025] and [0.975, 1].

    >>> bars({"low": 0.0, "high": 1.0, "counts": [3, 0, 0, 2]}, [0.0, 1.0, 1.0])
    [Bar(low=0.0, high=0.0, num_rows=3), Bar(low=1.0, high=1.0, num_rows=2)]
    """
    low, high, counts = histogram["low"], histogram["high"], histogram["counts"]
    width = (high - low) / len(counts)
    if not width > 0:
        return [Bar(low, low, sum(counts))]
    found = [
        Bar(low + place * width, low + (place + 1) * width, count)
        for place, count in enumerate(counts)
        if count
    ]
    if len(found) > _MOST_SINGLE:
        return found
    values: dict[int, set[float]] = {}
    for value in sample:
        place = min(len(counts) - 1, max(0, int((value - low) / (high - low) * len(counts))))
        values.setdefault(place, set()).add(value)
    singles = []
    for place, count in enumerate(counts):
        if count:
            (value, *more) = values.get(place) or {0.0, 1.0}
            if more:
                return found
            singles.append(Bar(value, value, count))
    return singles


def histogram_svg(name: str, found: Sequence[Bar], *, mean: float, x_label: str) -> str:
    """The bars over round ticks, with a line at the mean."""
    total = sum(bar.num_rows for bar in found)
    low, high = found[0].low, found[-1].high
    is_single = all(bar.low == bar.high for bar in found)
    span = high - low
    margin = 0.08 * span if is_single and span else 0.0
    if not span:
        margin = max(abs(low), 1.0)
    most = max(bar.num_rows for bar in found)
    plot = Plot(
        x=(low - margin, high + margin),
        y=(0, most * 1.05),
        title=f"Histogram of {name}",
        left=margin_for((0, most * 1.05)),
    )
    gap = min((b.low - a.low for a, b in pairwise(found)), default=0.0)
    has_room = not gap or plot.at_x(low + gap) - plot.at_x(low) > _LABEL
    ticks = [bar.low for bar in found] if is_single and has_room else round_ticks(*plot.x)
    plot.axes(x_label, "rows", x_ticks=ticks)
    for bar in found:
        left, right = plot.at_x(bar.low), plot.at_x(bar.high)
        if is_single:
            half = min(_WIDEST, 0.8 * (plot.at_x(low + gap) - plot.at_x(low)) or _WIDEST) / 2
            left, right = left - half, right + half
            what = short(bar.low)
        else:
            right = max(left + 0.5, right - 0.8)
            what = f"{short(bar.low)} to {short(bar.high)}"
        top = min(plot.at_y(bar.num_rows), plot.at_y(0) - 1)  # a single row is seen too
        title = tag("title", f"{what}: {bar.num_rows:,} rows ({percent(bar.num_rows / total)})")
        plot.add(
            tag(
                "rect",
                title,
                x=left,
                y=top,
                width=right - left,
                height=plot.at_y(0) - top,
                class_="bar",
            )
        )
    x = plot.at_x(mean)
    title = tag("title", f"mean {short(mean)}")
    plot.add(tag("line", title, x1=x, x2=x, y1=plot.top, y2=plot.at_y(0), class_="mean"))
    return plot.svg()
