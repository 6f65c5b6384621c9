"""Which components move together."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rlgym_llm.report.svg import tag, text

__all__ = ["matrix_svg"]

_CELL = 46.0
_LONGEST_NAME = 16


def matrix_svg(names: Sequence[str], r: Sequence[Sequence[float | None]]) -> str:
    """A cell for every two columns: Pearson's r as a number and as a colour."""
    shown = [name if len(name) <= _LONGEST_NAME else f"{name[:15]}…" for name in names]
    left = 14 + 6.6 * max(map(len, shown))
    top = 12 + 5.0 * max(map(len, shown))
    width = left + _CELL * len(names) + 4.6 * len(shown[-1])
    height = top + _CELL * len(names) + 4
    parts = []
    for row, name in enumerate(shown):
        middle = top + (row + 0.5) * _CELL
        parts.append(text(name, left - 8, middle + 4, "end", "name"))
        x = left + (row + 0.5) * _CELL
        turned = f"translate({x:.1f} {top - 8:.1f}) rotate(-40)"
        parts.append(text(name, 0, 0, "start", "name", transform=turned))
        for column in range(len(names)):
            parts.append(_cell(names[row], names[column], r[row][column], left, top, row, column))
    title = "Correlations of the components and of the length"
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{title}" '
        f'class="chart matrix" style="width:{width:.0f}px">{tag("title", title)}'
        f"{''.join(parts)}</svg>"
    )


def _cell(
    first: str, second: str, r: float | None, left: float, top: float, row: int, column: int
) -> str:
    x, y = left + column * _CELL, top + row * _CELL
    what = "no value: one of them never varies" if r is None else f"r = {r:.3f}".replace("-", "−")
    title = tag("title", f"{escape(first)} and {escape(second)}: {what}")
    kind = "none" if r is None else "plus" if r >= 0 else "minus"
    strength = 0.0 if r is None else abs(r)
    box = tag(
        "rect",
        x=x + 1,
        y=y + 1,
        width=_CELL - 2,
        height=_CELL - 2,
        rx=3,
        class_=f"cell {kind}",
        fill_opacity=round(0.04 + 0.9 * strength, 3),
    )
    number = "–" if r is None else f"{r:.2f}".replace("-", "−")
    shade = "cell-text strong" if strength > 0.55 else "cell-text"
    middle = (x + _CELL / 2, y + _CELL / 2 + 4)
    return tag("g", title + box + text(number, *middle, class_=shade))
