"""From the scores of steps to one value, and to the share that each step has in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rlgym_llm.errors import UserError

__all__ = ["Reduce", "Transform", "reduce_steps", "reduced_range", "transform_steps"]

Reduce = Literal["last", "mean", "min", "prod", "sum"]
Transform = Literal["none", "clip", "delta", "clip_delta"]


def transform_steps(
    scores: Sequence[float], transform: Transform = "none", *, eta: float = 0.0
) -> list[float]:
    """What each step counts for, from the scores ``s_1 ... s_n`` that the scorer gave.

    - ``none``: ``s_k``.
    - ``clip``: ``min(s_k - eta, 0)``: a step costs what it lacks to ``eta`` and never earns, so
      that further good steps add nothing (the Clip of Gao et al. 2024, arXiv 2410.15115).
    - ``delta``: ``s_k - s_{k-1}`` with ``s_0 = 0``: how much a step raised the score of the step
      before it. They add up to ``s_n``, however many steps there are. (The Delta of Gao et al. is
      another: it looks ahead, ``s_k - s_{k+1}``.)
    - ``clip_delta``: ``delta`` of what ``clip`` gives.

    >>> transform_steps([0.5, 0.75, 0.25], "clip", eta=0.5)
    [0.0, 0.0, -0.25]
    >>> transform_steps([0.5, 0.75, 0.25], "delta")
    [0.5, 0.25, -0.5]
    >>> transform_steps([0.5, 0.75, 0.25], "clip_delta", eta=0.5)
    [0.0, 0.0, -0.25]
    """
    values = list(scores)
    if transform in ("clip", "clip_delta"):
        values = [min(value - eta, 0.0) for value in values]
    if transform in ("delta", "clip_delta"):
        values = [value - before for value, before in zip(values, [0.0, *values], strict=False)]
    return values


def reduce_steps(values: Sequence[float], reduce: Reduce) -> tuple[float, list[float]]:
    """The value of the whole, and the shares of the steps, which add up to it (by `math.fsum`).

    - ``last``: the last step's value; it stands on the last step (outcome-like; Lightman et al.
      2023, arXiv 2305.20050, weigh it against the next two).
    - ``mean``: ``sum(v_k) / n``; every step has ``v_k / n``.
    - ``min``: the weakest step's value, and it stands on that step, the first of equals
      (Math-Shepherd, Wang et al. 2023, arXiv 2312.08935; against hacking by many easy steps,
      PURE, Cheng et al. 2025, arXiv 2504.15275).
    - ``prod``: ``v_1 * ... * v_n``, the chance that all are right; it stands on the last step.
    - ``sum``: ``v_1 + ... + v_n``; every step has its own. Longer pays, unless transformed.

    Three steps of 0.5, 0.25 and 1.0:

    >>> reduce_steps([0.5, 0.25, 1.0], "last")
    (1.0, [0.0, 0.0, 1.0])
    >>> value, shares = reduce_steps([0.5, 0.25, 1.0], "mean")
    >>> round(value, 4), [round(share, 4) for share in shares]
    (0.5833, [0.1667, 0.0833, 0.3333])
    >>> reduce_steps([0.5, 0.25, 1.0], "min")
    (0.25, [0.0, 0.25, 0.0])
    >>> reduce_steps([0.5, 0.25, 1.0], "prod")
    (0.125, [0.0, 0.0, 0.125])
    >>> reduce_steps([0.5, 0.25, 1.0], "sum")
    (1.75, [0.5, 0.25, 1.0])

    Raises ValueError without steps.
    """
    if not values:
        raise ValueError("there is no step to reduce")
    shares = [0.0] * len(values)
    if reduce == "last":
        shares[-1] = values[-1]
    elif reduce == "mean":
        shares = [value / len(values) for value in values]
    elif reduce == "min":
        weakest = min(range(len(values)), key=values.__getitem__)
        shares[weakest] = values[weakest]
    elif reduce == "prod":
        shares[-1] = math.prod(values)
    else:
        shares = list(values)
    return math.fsum(shares), shares


def reduced_range(
    low: float, high: float, reduce: Reduce, transform: Transform, eta: float
) -> tuple[float, float]:
    """Between which bounds the value lies, where every step's score lies in [low, high].

    >>> reduced_range(0.0, 1.0, "sum", "delta", 0.0), reduced_range(0.0, 1.0, "sum", "none", 0.0)
    ((0.0, 1.0), (0.0, inf))
    """
    if not low <= high:  # NaN is in no order
        raise UserError(f"step_range [{low}, {high}] is empty")
    if transform in ("clip", "clip_delta"):
        low, high = min(low - eta, 0.0), min(high - eta, 0.0)
    if transform in ("delta", "clip_delta") and reduce != "sum":  # the sum is the last step's own
        return reduced_range(min(low, low - high), max(high, high - low), reduce, "none", eta)
    if reduce == "sum" and transform in ("none", "clip"):
        return (low if low >= 0 else -math.inf), (high if high <= 0 else math.inf)
    if reduce == "prod":
        if low >= 0 and high <= 1:
            return 0.0, high
        return (-1.0, 1.0) if max(-low, high) <= 1 else (-math.inf, math.inf)
    return low, high
