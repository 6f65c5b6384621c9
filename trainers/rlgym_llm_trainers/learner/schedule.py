"""The learning rate as a pure function of the step, so that a resumed run needs no state."""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["LrKind", "lr_at"]

LrKind = Literal["constant", "linear", "cosine"]


def lr_at(
    step: int, *, base_lr: float, kind: LrKind = "constant", warmup_steps: int = 0, total_steps: int
) -> float:
    """Learning rate of the update that follows ``step`` finished ones (0 for the first).

    The warm-up climbs linearly and reaches ``base_lr`` at its last update; the first update
    already learns. ``linear`` and ``cosine`` then fall to 0 at ``total_steps``, one update after
    the last, so no update is wasted at 0.

    >>> [lr_at(s, base_lr=1.0, kind="linear", warmup_steps=2, total_steps=4) for s in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < 0:
        raise ValueError(f"step must be 0 or more, got {step}")
    if not 0 <= warmup_steps <= total_steps:
        raise ValueError(f"warmup_steps must be in [0, {total_steps}], got {warmup_steps}")
    if step < warmup_steps:
        return base_lr * (step + 1) / warmup_steps
    # Beyond the last step the decayed schedules stay at 0 (and nothing divides by 0).
    remaining = max(total_steps - step, 0) / max(total_steps - warmup_steps, 1)
    match kind:
        case "constant":
            return base_lr
        case "linear":
            return base_lr * remaining
        case "cosine":
            return base_lr * 0.5 * (1 - math.cos(math.pi * remaining))
        case _:
            raise ValueError(f"unknown schedule {kind!r} (known: constant, cosine, linear)")
