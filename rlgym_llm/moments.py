"""Count, mean and spread of numbers that come in parts and are not kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "finite_float64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Count, mean, sum of squared deviations and extremes of numbers that are not kept; float64.

    Parts merge without the cancellation of ``sum(x^2) - sum(x)^2 / n`` (Chan, Golub, LeVeque 1979):
    ``m2 = m2_a + m2_b + (mean_b - mean_a)^2 * n_a * n_b / (n_a + n_b)``. The same parts merged in
    the same order give the same bits. ``Moments()`` has seen nothing.

    >>> whole = Moments.of([1.0, 2.0]).merge(Moments.of([6.0]))
    >>> whole.count, whole.mean, whole.m2, whole.low, whole.high
    (3, 3.0, 14.0, 1.0, 6.0)
    >>> whole.variance
    7.0
    """

    count: int = 0
    mean: float = 0.0
    """0 where nothing was seen."""
    m2: float = 0.0
    """Sum of ``(x - mean)^2``."""
    low: float = math.inf
    """The smallest number seen."""
    high: float = -math.inf
    """The largest number seen."""

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """The moments of ``values``. Raises ValueError for NaN and infinity."""
        x = finite_float64(values)
        if x.size == 0:
            return cls()
        mean = float(x.mean())
        low, high = float(x.min()), float(x.max())
        # Rounding may put a mean of equal numbers beside them.
        mean = min(max(mean, low), high)
        m2 = float(np.square(x - mean).sum())
        return cls(count=x.size, mean=mean, m2=m2, low=low, high=high)

    def merge(self, other: Moments) -> Self:
        """The moments of both together."""
        if other.count == 0:
            return self
        count = self.count + other.count
        share, apart = other.count / count, other.mean - self.mean
        low, high = min(self.low, other.low), max(self.high, other.high)
        return type(self)(
            count=count,
            mean=min(max(self.mean + apart * share, low), high),
            m2=self.m2 + other.m2 + apart * apart * self.count * share,
            low=low,
            high=high,
        )

    @property
    def variance(self) -> float:
        """The unbiased variance, ``m2 / (n - 1)``; NaN for fewer than two numbers."""
        return self.m2 / (self.count - 1) if self.count > 1 else math.nan

    @property
    def std(self) -> float:
        """The root of `variance`."""
        return math.sqrt(self.variance)


def finite_float64(values: Iterable[float]) -> NDArray[np.float64]:
    """The numbers as one array [n]. Raises ValueError for NaN and infinity."""
    kept = values if isinstance(values, np.ndarray) else list(values)
    x = np.asarray(kept, dtype=np.float64).reshape(-1)
    if not np.isfinite(x).all():
        raise ValueError("a mean needs finite numbers; leave out what has no value")
    return x
