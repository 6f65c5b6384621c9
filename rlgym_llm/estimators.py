"""What n samples of a task say about k of them: pass@k and maj@k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

__all__ = ["maj_at_k", "pass_at_k"]

_MOST_COUNTED = 1000
"""With so many samples the ways to choose some still fit into a float: C(1000, 500) ~ 1e299."""


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
