"""Numbers as people read them, and round ones for axes."""

from __future__ import annotations

import math

__all__ = ["percent", "round_ticks", "seconds", "short"]


def short(value: float | None, digits: int = 4) -> str:
    """So many significant digits, with a minus sign that is as wide as a plus.

    >>> short(-0.097838), short(1234567.0), short(0.00002), short(None)
    ('−0.09784', '1,234,567', '2e−05', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    is_whole = float(value).is_integer() or abs(value) >= 10**digits
    text = f"{value:,.0f}" if is_whole and abs(value) < 1e9 else f"{value:.{digits}g}"
    return ("0" if text == "-0" else text).replace("-", "−")


def percent(share: float | None) -> str:
    """One digit behind the point.

    >>> percent(0.3793), percent(None)
    ('37.9%', '–')
    """
    return "–" if share is None else f"{share:.1%}"


def seconds(value: float) -> str:
    """A time in the unit that suits it.

    >>> seconds(0.0000123), seconds(0.0285), seconds(8.29), seconds(4000)
    ('12 µs', '28.5 ms', '8.29 s', '67 min')
    """
    if value >= 600:
        return f"{value / 60:,.0f} min"
    if value >= 1:
        return f"{value:.3g} s"
    if value >= 1e-3:
        return f"{value * 1e3:.3g} ms"
    return f"{value * 1e6:.0f} µs"


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) within [low, high], at most ``most``.

    >>> round_ticks(-1.571, 0.954)
    [-1.5, -1.0, -0.5, 0.0, 0.5]
    >>> round_ticks(0, 1, 3)
    [0.0, 0.5, 1.0]
    """
    width = high - low
    if not (width > 0 and math.isfinite(width)):
        return [low]
    exponent = math.floor(math.log10(width / most)) - 1
    for step in (m * 10.0**e for e in range(exponent, exponent + 4) for m in (1, 2, 5)):
        slack = 1e-9 * step
        first, last = math.ceil((low - slack) / step), math.floor((high + slack) / step)
        if last - first + 1 <= most:
            places = max(0, -math.floor(math.log10(step)))
            return [round(k * step, places) + 0.0 for k in range(first, last + 1)]
    return [low]
