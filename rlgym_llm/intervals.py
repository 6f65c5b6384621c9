"""Means with their 95% confidence intervals, of numbers that may come in groups."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.moments import Moments, finite_float64

__all__ = ["Interval", "chance_and_interval", "clustered_interval", "mean_and_interval"]

_Z = NormalDist().inv_cdf(0.975)
_SMALL_DF = 100
"""Below this many degrees of freedom the t quantile is solved for; above, expanded."""


class Interval(NamedTuple):
    """A mean and the 95% interval around it, ``low <= mean <= high``."""

    mean: float
    low: float
    """-inf where a single number, or a single group, bounds nothing."""
    high: float


def mean_and_interval(
    values: Moments | Iterable[float], *, groups: Sequence[Hashable] | None = None
) -> Interval:
    """The mean of numbers (or of their `Moments`) and its 95% confidence interval.

    Numbers that are all 0 or 1 get Wilson's interval (1927), with z = 1.96:
    ``(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``, never empty and within [0, 1];
    others ``mean +- t std / sqrt(n)``, Student's t at n - 1 degrees of freedom.

    ``groups`` names the group of each number, such as its prompt: samples of one prompt resemble
    each other, so it is the G groups that count and not the n numbers. The squared standard error
    is ``G/(G-1) sum_g (sum_i (x_gi - mean))^2 / n^2`` (arXiv 2411.00640, section 2.2, with the
    small-sample factor), which for groups of one size is that of the group means, and t has G - 1
    degrees of freedom. Wilson's n becomes the effective ``p(1-p) / se^2 (t_{n-1} / t_{G-1})^2``, at
    most n (Korn and Graubard 1998); G where all verdicts agree. Raises ValueError for no numbers,
    for NaN, for infinity, and where ``groups`` does not match.

    >>> [round(x, 3) for x in mean_and_interval([1, 1, 1, 0])]
    [0.75, 0.301, 0.954]
    >>> [round(x, 3) for x in mean_and_interval([1.0, 2.0, 6.0])]  # 3 +- 4.303 * 2.646 / 1.732
    [3.0, -3.572, 9.572]
    >>> [round(x, 3) for x in mean_and_interval([1, 1, 0, 0], groups=["a", "a", "b", "b"])]
    [0.5, 0.004, 0.996]
    """
    if groups is not None:
        if isinstance(values, Moments):
            raise ValueError("moments no longer tell the groups; give the numbers themselves")
        return _clustered(finite_float64(values), groups)
    moments = values if isinstance(values, Moments) else Moments.of(values)
    if moments.count == 0:
        raise ValueError("no numbers to take the mean of")
    if _is_binary(moments):
        return _wilson(moments.mean, moments.count)
    if moments.count == 1:
        return Interval(moments.mean, -math.inf, math.inf)
    return _student(moments.mean, moments.std / math.sqrt(moments.count), moments.count - 1)


def chance_and_interval(chances: Moments | Iterable[float]) -> Interval:
    """`mean_and_interval` of chances, one per task: the interval stays within [0, 1].

    >>> [round(x, 3) for x in chance_and_interval([1.0, 0.5, 1.0])]  # 0.833 +- 0.717
    [0.833, 0.116, 1.0]
    """
    mean, low, high = mean_and_interval(chances)
    return Interval(mean, max(0.0, low), min(1.0, high))


def clustered_interval(
    moments: Moments, *, num_groups: int, squared_sums: float, squared_sizes: float
) -> Interval:
    """`mean_and_interval` with groups, where only sums over the groups are at hand.

    ``squared_sums`` is ``sum_g (sum_i (x_gi - mean))^2``, ``squared_sizes`` is ``sum_g n_g^2``.

    >>> of_two_pairs_that_agree = dict(num_groups=2, squared_sums=2.0, squared_sizes=8.0)
    >>> found = clustered_interval(Moments.of([1, 1, 0, 0]), **of_two_pairs_that_agree)
    >>> [round(x, 3) for x in found]
    [0.5, 0.004, 0.996]
    """
    n, mean = moments.count, moments.mean
    squared_error = squared_sums / n**2
    if num_groups > 1:
        squared_error *= num_groups / (num_groups - 1)
    if _is_binary(moments):
        spread = mean * (1 - mean)
        if spread == 0 or num_groups == 1:
            # Where all agree, nothing is known of how alike siblings are: as alike as can be.
            return _wilson(mean, n**2 / squared_sizes)
        fewer = (_t_quantile(n - 1) / _t_quantile(num_groups - 1)) ** 2
        return _wilson(mean, min(n, spread * fewer / squared_error) if squared_error else n)
    if num_groups == 1:
        return Interval(mean, -math.inf, math.inf)
    return _student(mean, math.sqrt(squared_error), num_groups - 1)


def _is_binary(moments: Moments) -> bool:
    """Whether all numbers are 0 or 1: within [0, 1] only these have ``sum(x) == sum(x^2)``."""
    if moments.low < 0 or moments.high > 1:
        return False
    between = moments.count * moments.mean * (1 - moments.mean) - moments.m2
    return abs(between) <= 1e-9 + 1e-12 * moments.count  # rounding grows with the count


def _clustered(x: NDArray[np.float64], groups: Sequence[Hashable]) -> Interval:
    if x.size == 0:
        raise ValueError("no numbers to take the mean of")
    if len(groups) != x.size:
        raise ValueError(f"{x.size} numbers but {len(groups)} groups")
    place: dict[Hashable, int] = {}
    index = np.array([place.setdefault(group, len(place)) for group in groups])
    moments = Moments.of(x)
    return clustered_interval(
        moments,
        num_groups=len(place),
        squared_sums=float(np.square(np.bincount(index, weights=x - moments.mean)).sum()),
        squared_sizes=float(np.square(np.bincount(index)).sum()),
    )


def _wilson(p: float, n: float) -> Interval:
    center = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    # At p = 0 and p = 1 an end is p itself, up to rounding.
    return Interval(p, max(0.0, min(p, center - half)), min(1.0, max(p, center + half)))


def _student(mean: float, error: float, df: int) -> Interval:
    half = _t_quantile(df) * error
    return Interval(mean, mean - half, mean + half)


@lru_cache(maxsize=256)
def _t_quantile(df: int) -> float:
    """The 97.5% quantile of Student's t: 12.706 at 1, 4.303 at 2, 2.228 at 10, 1.984 at 100.

    Bisection on the finite series of the distribution (Abramowitz and Stegun 26.7.3, 26.7.4), and
    for many degrees of freedom the expansion around the normal (26.7.5), good to 2e-8 there.
    """
    if df >= _SMALL_DF:
        z: float = _Z
        terms = (
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return z + terms[0] / df + terms[1] / df**2 + terms[2] / df**3
    low, high = 0.0, math.pi / 2  # theta = atan(t / sqrt(df))
    for _ in range(100):
        theta = (low + high) / 2
        if _t_central_mass(theta, df) < 0.95:
            low = theta
        else:
            high = theta
    return math.tan(low) * math.sqrt(df)


def _t_central_mass(theta: float, df: int) -> float:
    """P(|T| < t) with ``theta = atan(t / sqrt(df))``."""
    sine, cosine = math.sin(theta), math.cos(theta)
    is_odd = df % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for step in range(3 if is_odd else 2, df + 1, 2):
        total += term
        term *= (step - 1) / step * cosine**2
    if is_odd:
        return 2 / math.pi * (theta + sine * total)
    return sine * total
