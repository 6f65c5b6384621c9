"""Charts as inline SVG: a plot area with axes, and what is drawn in it.

Colours are classes of the page's style sheet, so that charts follow light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from rlgym_llm.report.numbers import round_ticks, short

__all__ = ["Plot", "margin_for", "tag", "text"]


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """One element; numbers are rounded to a hundredth of a pixel.

    >>> tag("rect", x=1.006, class_="bar")
    '<rect x="1.01" class="bar"/>'
    """
    given = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


@dataclass(kw_only=True)
class Plot:
    """A plot area ``width`` by ``height`` units, in which data coordinates are drawn.

    Labels stay readable on a telephone when a plot is about 400 units wide.
    """

    x: tuple[float, float]
    """What the horizontal axis covers."""
    y: tuple[float, float]
    title: str
    """What the chart shows, for whoever cannot see it."""
    width: float = 400
    height: float = 250
    left: float = 48
    bottom: float = 42
    top: float = 12
    right: float = 20
    parts: list[str] = field(default_factory=list)

    def at_x(self, value: float) -> float:
        """Where a value lies, from the left."""
        return self.left + self._share(value, self.x) * (self.width - self.left - self.right)

    def at_y(self, value: float) -> float:
        """Where a value lies, from the top."""
        return self.height - self.bottom - self._share(value, self.y) * self.inner_height

    @property
    def inner_height(self) -> float:
        """Height of the area within the axes."""
        return self.height - self.top - self.bottom

    def add(self, *parts: str) -> None:
        """Draws on top of what is there."""
        self.parts += parts

    def axes(
        self,
        x_label: str,
        y_label: str,
        *,
        x_ticks: Sequence[float] | None = None,
        y_ticks: Sequence[float] | None = None,
        x_text: Callable[[float], str] = short,
        y_text: Callable[[float], str] = short,
    ) -> None:
        """Draws grid lines, ticks at round numbers, and what the axes mean."""
        base = self.height - self.bottom
        edge = self.width - self.right
        for value in round_ticks(*self.y, 6) if y_ticks is None else y_ticks:
            y = self.at_y(value)
            self.add(tag("line", x1=self.left, x2=edge, y1=y, y2=y, class_="grid"))
            self.add(text(y_text(value), self.left - 6, y + 4, "end"))
        most = max(3, int(self.width / 66))
        for value in round_ticks(*self.x, most) if x_ticks is None else x_ticks:
            x = self.at_x(value)
            self.add(tag("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis"))
            self.add(text(x_text(value), x, base + 19))
        self.add(tag("line", x1=self.left, x2=edge, y1=base, y2=base, class_="axis"))
        middle = (self.left + edge) / 2
        self.add(text(x_label, middle, self.height - 6, class_="label"))
        turned = f"translate(11 {self.top + self.inner_height / 2:.1f}) rotate(-90)"
        self.add(text(y_label, 0, 0, class_="label", transform=turned))

    def svg(self, class_: str = "") -> str:
        """The finished chart."""
        title = tag("title", escape(self.title))
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.title)}" class="chart {class_}" '
            f'style="max-width:{self.width * 1.15:g}px">{title}{"".join(self.parts)}</svg>'
        )

    def _share(self, value: float, span: tuple[float, float]) -> float:
        low, high = span
        return (value - low) / (high - low)


def margin_for(span: tuple[float, float]) -> float:
    """Room left of a vertical axis over ``span``: for its ticks and what it means.

    >>> margin_for((0, 1)), margin_for((0, 1_000_000))
    (44.4, 85.2)
    """
    longest = max(len(short(value)) for value in round_ticks(*span, 6))
    return round(24 + 6.8 * longest, 1)


def text(
    content: str, x: float, y: float, anchor: str = "middle", class_: str = "tick", **more: Any
) -> str:
    """A line of text."""
    return tag("text", escape(content), x=x, y=y, text_anchor=anchor, class_=class_, **more)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key != "viewBox" else key


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{round(value, 2):g}"
    return escape(str(value))
