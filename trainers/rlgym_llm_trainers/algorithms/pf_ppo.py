"""Policy filtration (PF-PPO, arXiv 2409.06957): a batch drawn again by what its samples scored.

Reward models are surest about the best and the worst responses, so that those in between are
learned from less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReweightMethod", "filtration_weights", "resample"]

ReweightMethod = Literal["pow", "max_min", "max_random"]

_LEAST = 1e-8
"""verl's: what keeps the weights from adding up to 0."""


def filtration_weights(
    scores: Sequence[float], method: ReweightMethod = "pow", *, power: float = 2.0
) -> NDArray[np.float64]:
    """The chance of each sample [N] to be drawn; they add up to 1.

    ``pow`` weighs by ``|score|^power``, ``max_min`` takes the best and the worst alone,
    ``max_random`` the best four times as often as the others. Scores that are all equal are drawn
    evenly. Raises ValueError for no scores, for one that is not finite, and for an unknown method.

    >>> filtration_weights([1.0, -2.0, 0.0], power=2.0).round(6).tolist()
    [0.2, 0.8, 0.0]
    >>> filtration_weights([1.0, 3.0, 2.0], "max_min").round(6).tolist()
    [0.5, 0.5, 0.0]
    """
    found = np.asarray(scores, dtype=np.float64)
    if not found.size or not np.isfinite(found).all():
        raise ValueError("policy filtration needs scores, all of them finite")
    match method:
        case "pow":
            # Over the largest first: a power of a large score must not become infinite.
            largest = float(np.abs(found).max())
            weights = (np.abs(found) / largest) ** power if largest else np.ones_like(found)
        case "max_min":
            weights = ((found == found.max()) | (found == found.min())).astype(np.float64)
        case "max_random":
            weights = np.where(found == found.max(), 0.4, 0.1)
        case _:
            raise ValueError(f"method must be pow, max_min or max_random, got {method!r}")
    weights = weights + _LEAST
    chances: NDArray[np.float64] = weights / weights.sum()
    return chances


def resample(
    scores: Sequence[float],
    method: ReweightMethod = "pow",
    *,
    power: float = 2.0,
    seed: int,
) -> list[int]:
    """N places of the batch drawn with replacement by `filtration_weights`; advantages first.

    Advantages are taken of the whole batch before, since they compare what is dropped here. The
    same seed draws the same.

    >>> sorted(set(resample([5.0, 1.0, 1.0, 0.0], "max_min", seed=0)) - {0, 3})
    []
    """
    chances = filtration_weights(scores, method, power=power)
    drawn = np.random.default_rng(seed).choice(len(chances), size=len(chances), p=chances)
    return [int(place) for place in drawn]
