"""What samples say about a model: pass@k, maj@k, and means with their intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache, partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.moments import Moments, finite_float64

__all__ = ["Interval", "Moments", "maj_at_k", "mean_and_interval", "pass_at_k"]

_Z = NormalDist().inv_cdf(0.975)
_MOST_COUNTED = 1000
"""With so many samples the ways to choose some still fit into a float: C(1000, 500) ~ 1e299."""
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


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n samples, c of them right, hold a right one; unbiased for pass@k.

    ``1 - C(n-c, k) / C(n, k)`` as the product ``1 - prod_{i=n-c+1}^{n} (1 - k/i)``, which never
    overflows (Chen et al. 2021, arXiv 2107.03374). Raises ValueError unless ``0 <= c <= n`` and
    ``1 <= k <= n``.

    >>> round(pass_at_k(4, 2, 2), 4)  # 1 - C(2,2) / C(4,2) = 1 - 1/6
    0.8333
    """
    if not 0 <= c <= n:
        raise ValueError(f"of {n} samples {c} cannot be right")
    _check_k(k, n)
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def maj_at_k(answers: Sequence[Hashable | None], correct: Sequence[bool], k: int) -> float:
    """The chance that the majority vote of k of the n samples is right; maj@k of one task.

    The mean over all subsets of size k, exact up to rounding for every k; k = n is the vote of
    all (arXiv 2203.11171). Answers that tie share the win equally. None is no answer: it wins no
    vote, and where all k are None the vote is wrong. An answer that ``correct`` judges both ways
    counts by its share of right ones.

    Rather than the C(n, k) subsets it counts votes: an answer with n_a samples has j of them in
    the subset in C(n_a, j) ways, so for every winning count m the answers are convolved over
    (votes spent, answers with m votes). Raises ValueError where the lengths differ or k is not in
    [1, n].

    >>> maj_at_k(["5", "5", "7"], [True, True, False], 3)  # 5 wins 2 to 1
    1.0
    >>> round(maj_at_k(["5", "5", "7"], [True, True, False], 2), 4)  # (1 + 1/2 + 1/2) / 3
    0.6667
    """
    n = len(answers)
    if len(correct) != n:
        raise ValueError(f"{n} answers but {len(correct)} verdicts")
    _check_k(k, n)
    sizes = Counter(answer for answer in answers if answer is not None)
    num_right = Counter(a for a, right in zip(answers, correct, strict=True) if right)
    if not sizes:
        return 0.0
    num_silent = n - sizes.total()
    # Drawing each sample with chance k/n, given that k are drawn, is a uniform subset too; the
    # binomial chances stay within floats where the numbers of ways do not.
    count_ways = _num_ways if n <= _MOST_COUNTED else partial(_binomial, p=k / n)
    ways = {size: count_ways(size) for size in {*sizes.values(), num_silent, n}}
    chance = 0.0
    for m in range(1, min(k, max(sizes.values())) + 1):
        most_ties = k // m
        # [votes spent, answers with m votes]: the weight, and the weight times their share right
        weight = np.zeros((k + 1, most_ties + 1))
        silent = ways[num_silent][: k + 1]
        weight[: len(silent), 0] = silent
        right = np.zeros_like(weight)
        for answer, size in sizes.items():
            share = num_right[answer] / size
            weight, right = _add_answer(weight, right, ways[size], m, share)
        ties = np.arange(1, most_ties + 1)
        chance += float((right[k, 1:] / ties).sum())
    return min(1.0, chance / float(ways[n][k]))


def _add_answer(
    weight: NDArray[np.float64],
    right: NDArray[np.float64],
    ways: NDArray[np.float64],
    m: int,
    share: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Convolves one more answer in: fewer than m votes, or m of them and so among the winners."""
    new_weight, new_right = np.zeros_like(weight), np.zeros_like(right)
    for j in range(min(m, len(ways))):
        new_weight[j:] += ways[j] * weight[: len(weight) - j]
        new_right[j:] += ways[j] * right[: len(right) - j]
    if m < len(ways):
        before = weight[: len(weight) - m, :-1]
        new_weight[m:, 1:] += ways[m] * before
        new_right[m:, 1:] += ways[m] * (right[: len(right) - m, :-1] + share * before)
    return new_weight, new_right


def _num_ways(n: int) -> NDArray[np.float64]:
    """C(n, j), j = 0..n."""
    return np.array([math.comb(n, j) for j in range(n + 1)], dtype=np.float64)


def _binomial(n: int, p: float) -> NDArray[np.float64]:
    """P(j of n), j = 0..n, when each is drawn with chance p in (0, 1]."""
    if p == 1.0:
        return np.asarray([0.0] * n + [1.0])
    log_ways = [
        math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(n + 1)
    ]
    j = np.arange(n + 1)
    ways: NDArray[np.float64] = np.exp(
        np.array(log_ways) + j * math.log(p) + (n - j) * math.log1p(-p)
    )
    return ways


def _check_k(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to the number of samples, {n}; got {k}")


def _is_binary(moments: Moments) -> bool:
    """Whether all numbers are 0 or 1: within [0, 1] only these have ``sum(x) == sum(x^2)``."""
    if moments.low < 0 or moments.high > 1:
        return False
    between = moments.count * moments.mean * (1 - moments.mean) - moments.m2
    return abs(between) <= 1e-9 + 1e-12 * moments.count  # rounding grows with the count


def _clustered(x: NDArray[np.float64], groups: Sequence[Hashable]) -> Interval:
    n = x.size
    if n == 0:
        raise ValueError("no numbers to take the mean of")
    if len(groups) != n:
        raise ValueError(f"{n} numbers but {len(groups)} groups")
    place: dict[Hashable, int] = {}
    index = np.array([place.setdefault(group, len(place)) for group in groups])
    moments = Moments.of(x)
    mean, num_groups = moments.mean, len(place)
    sums = np.bincount(index, weights=x - mean)
    sizes = np.bincount(index)
    squared_error = float(np.square(sums).sum()) / n**2
    if num_groups > 1:
        squared_error *= num_groups / (num_groups - 1)
    if _is_binary(moments):
        # Where all agree, nothing is known of how alike siblings are: as alike as can be.
        all_alike = n**2 / float(np.square(sizes).sum())
        spread = mean * (1 - mean)
        if spread == 0 or num_groups == 1:
            return _wilson(mean, all_alike)
        fewer = (_t_quantile(n - 1) / _t_quantile(num_groups - 1)) ** 2
        return _wilson(mean, min(n, spread * fewer / squared_error) if squared_error else n)
    if num_groups == 1:
        return Interval(mean, -math.inf, math.inf)
    return _student(mean, math.sqrt(squared_error), num_groups - 1)


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
