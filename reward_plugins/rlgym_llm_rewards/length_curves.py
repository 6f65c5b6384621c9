"""What a length is worth: the curves of the reward `length`, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["cosine", "group_relative", "soft_overlong"]


def cosine(length: float, max_len: float, *, at_0: float, at_max: float) -> float:
    """``at_max + (at_0 - at_max) (1 + cos(pi min(length / max_len, 1))) / 2``.

    From ``at_0`` at length 0 it goes to ``at_max`` at ``max_len``, slowly at both ends, and stays
    there (arXiv 2502.03373, appendix B: CosFn; without the bound twice the limit earns ``at_0``).

    >>> [round(cosine(n, 1000, at_0=1.0, at_max=0.5), 9) for n in (0, 500, 1000, 2000)]
    [1.0, 0.75, 0.5, 0.5]
    """
    if length >= max_len:
        return at_max
    return at_max + (at_0 - at_max) * (1 + math.cos(math.pi * length / max_len)) / 2


def soft_overlong(length: float, max_len: float, *, cache: float, factor: float = 1.0) -> float:
    """``-factor min(max(length - (max_len - cache), 0) / cache, 1)``: in [-factor, 0].

    Free up to ``max_len - cache``, then linear down to ``-factor`` at ``max_len``, and no lower
    (DAPO, arXiv 2503.14476, equation 13, where factor is 1).

    >>> [soft_overlong(n, 1000, cache=200) for n in (500, 800, 801, 900, 1000, 1200)]
    [0.0, 0.0, -0.005, -0.5, -1.0, -1.0]
    """
    excess = length - (max_len - cache)
    return 0.0 if excess <= 0 else -factor * min(excess / cache, 1.0)


def group_relative(lengths: Sequence[float], are_correct: Sequence[bool]) -> list[float]:
    """``lambda_i = 0.5 - (len_i - min) / (max - min)``; of wrong ones ``min(0, lambda_i)``.

    The shortest sibling earns 0.5 and the longest -0.5, but nothing is earned by being short and
    wrong; where all are of one length, all get 0 (Kimi k1.5, arXiv 2501.12599, section 2.3.3).

    >>> group_relative([100, 200, 300, 100], [True, True, True, False])
    [0.5, 0.0, -0.5, 0.0]
    """
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    spread = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
    return [
        value if is_correct else min(0.0, value)
        for value, is_correct in zip(spread, are_correct, strict=True)
    ]
