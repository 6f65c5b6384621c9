"""Advantages that normalise each component by itself before the weighted sum (GDPO)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rlgym_llm.scores import Component, ScoreCard
from rlgym_llm_trainers.advantages import GroupAdvantages

__all__ = ["gdpo_advantages"]

_NOISE = 1e-3


def gdpo_advantages(
    cards: Sequence[ScoreCard],
    of_rewards: GroupAdvantages,
    estimate: Callable[[Sequence[float | None]], GroupAdvantages],
    *,
    eps: float = 1e-6,
) -> GroupAdvantages:
    """``A = whiten(sum_k w_k A_k)`` with ``A_k`` the group advantages of component k alone.

    GDPO, arXiv 2601.05242, equations 4 to 6: two rewards of different spread then pull by their
    weights, where the sum would be ruled by the wider one. Whitening is over the batch's valid
    rollouts, biased std. A component that does not apply to a rollout adds 0 to it. Which rollouts
    are valid, and the metrics, are those of ``of_rewards``, the advantages of the composed rewards;
    ``estimate`` is the estimator over siblings, given one value per rollout.

    Correctness 0, 0, 1, 1 and a bonus of 0, 100, 0, 100 in one group, weights 1 and 1: sums are
    ruled by the bonus, here rollouts 2 and 3 are worth the same (0), and 1 and 4 are -/+1.414.
    """
    names = dict.fromkeys(name for card in cards for name in card.components)
    weights = {
        name: next(c.components[name].weight for c in cards if name in c.components)
        for name in names
    }
    total = np.zeros(len(cards), dtype=np.float64)
    for name, weight in weights.items():
        if not weight:
            continue
        values = [
            _value(card.components[name]) if is_valid and name in card.components else None
            for card, is_valid in zip(cards, of_rewards.is_valid, strict=True)
        ]
        alone = estimate(values)
        total += weight * np.where(alone.is_valid, alone.advantages, 0.0)
    valid = of_rewards.is_valid
    if valid.any():
        kept = total[valid]
        centred = kept - kept.mean()
        total = np.zeros_like(total)
        # Advantages are of order 1: a spread far below is what eps left of a cancelled sum.
        if kept.std() > _NOISE:
            total[valid] = centred / (kept.std() + eps)
    return replace(of_rewards, advantages=total)


def _value(component: Component) -> float | None:
    """What the weight was put on: 0 for a truncated rollout under ``on_truncated: zero``."""
    contribution = component.contribution
    return None if contribution is None else contribution / component.weight
