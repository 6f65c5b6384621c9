"""Whether longer completions earn more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlgym_llm.intervals import mean_and_interval
from rlgym_llm.report.numbers import short
from rlgym_llm.report.svg import Plot, margin_for, tag

__all__ = ["LengthBand", "Point", "length_bands", "length_svg"]

_NUM_BANDS = 10
_FEWEST = 5
_POWER_WIDTH = 80


class Point(NamedTuple):
    """One row of the sample."""

    chars: int
    reward: float
    is_right: bool | None
    """What the accuracy component says; None where there is none."""


class LengthBand(NamedTuple):
    """A tenth of the rows, by length, and the mean of their rewards."""

    low: int
    high: int
    middle: float
    """Mean length."""
    num_rows: int
    mean: float
    mean_low: float
    mean_high: float


def length_bands(points: Sequence[Point]) -> list[LengthBand]:
    """Ten bands of as many rows each, fewer where rows are few; those of one length stay together.

    >>> rows = [Point(chars, 2.0 * chars, None) for chars in range(1, 11)]
    >>> [(band.low, band.high, band.mean) for band in length_bands(rows)]
    [(1, 5, 6.0), (6, 10, 16.0)]
    """
    ordered = sorted(points, key=lambda point: point.chars)
    num_bands = max(1, min(_NUM_BANDS, len(ordered) // _FEWEST))
    found: list[LengthBand] = []
    start = 0
    for band in range(1, num_bands + 1):
        end = round(band * len(ordered) / num_bands)
        while 0 < end < len(ordered) and ordered[end].chars == ordered[end - 1].chars:
            end += 1
        if end - start < 2:
            continue
        rows = ordered[start:end]
        mean, low, high = mean_and_interval([row.reward for row in rows])
        middle = math.fsum(row.chars for row in rows) / len(rows)
        found.append(LengthBand(rows[0].chars, rows[-1].chars, middle, len(rows), mean, low, high))
        start = end
    return found


def length_svg(points: Sequence[Point], *, width: float, height: float, class_: str) -> str:
    """A dot for every row and, over them, the bands' means with their 95% intervals.

    The axis of lengths is logarithmic where the longest is over 50 times the middle one.
    """
    lengths = sorted(max(1, point.chars) for point in points)
    is_log = lengths[-1] > 50 * lengths[len(lengths) // 2]
    scale = math.log10 if is_log else float
    rewards = [point.reward for point in points]
    low, high = scale(lengths[0]), scale(lengths[-1])
    margin = 0.02 * (high - low) or 1.0
    y_low, y_high = min(rewards), max(rewards)
    y_margin = 0.05 * (y_high - y_low) or 1.0
    plot = Plot(
        x=(low - margin, high + margin),
        y=(y_low - y_margin, y_high + y_margin),
        left=margin_for((y_low - y_margin, y_high + y_margin)),
        title="Reward against the length of the completion",
        width=width,
        height=height,
    )
    if is_log:
        powers = range(math.ceil(low), math.floor(high) + 1)
        ticks = [float(k) for k in powers[:: math.ceil(len(powers) * _POWER_WIDTH / width) or 1]]
        plot.axes(
            "length in characters (logarithmic)",
            "reward",
            x_ticks=ticks,
            x_text=lambda value: short(10**value),
        )
    else:
        plot.axes("length in characters", "reward")
    for class_name, verdict in (("wrong", False), ("right", True), ("plain", None)):
        dots = "".join(
            f"M{plot.at_x(scale(max(1, p.chars))):.1f} {plot.at_y(p.reward):.1f}h0"
            for p in points
            if p.is_right is verdict
        )
        if dots:
            plot.add(tag("path", d=dots, class_=f"dots {class_name}"))
    bands = length_bands(points)
    at = [(plot.at_x(scale(max(1.0, b.middle))), plot.at_y(b.mean)) for b in bands]
    if len(at) > 1:
        line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        plot.add(tag("path", d=line, class_="trend-halo"), tag("path", d=line, class_="trend"))
    for band, (x, y) in zip(bands, at, strict=True):
        title = tag(
            "title",
            f"{band.low:,} to {band.high:,} characters: mean reward {short(band.mean)} "
            f"({short(band.mean_low)} to {short(band.mean_high)}), {band.num_rows:,} rows",
        )
        ends = [plot.at_y(min(max(v, plot.y[0]), plot.y[1])) for v in band[5:]]
        bar = tag("line", x1=x, x2=x, y1=ends[0], y2=ends[1], class_="interval")
        dot = tag("circle", cx=x, cy=y, r=4, class_="trend-dot")
        plot.add(tag("g", title + bar + dot))
    return plot.svg(class_)
