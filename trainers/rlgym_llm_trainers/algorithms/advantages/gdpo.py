"""Advantages that normalise each reward component by itself before the weighted sum (GDPO)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlgym_llm_trainers.algorithms.advantages.inputs import (
    AdvantageInputs,
    Advantages,
    Bools,
    Floats,
)
from rlgym_llm_trainers.algorithms.advantages.siblings import (
    broadcast,
    compare,
    find_siblings,
    normalize,
)

__all__ = ["gdpo"]

_NOISE = 1e-3


def gdpo(
    inputs: AdvantageInputs, *, norm_adv_by_std_in_grpo: bool = True, eps: float = 1e-6
) -> Advantages:
    """``A = whiten(sum_k w_k A_k)`` with ``A_k`` the group advantages of component k alone.

    GDPO, arXiv 2601.05242, equations 4 to 6: two rewards of different spread then pull by their
    weights, where the sum would be ruled by the wider one. Whitening is over the batch's valid
    rollouts, unbiased std; verl's is over their tokens, so that long ones set its mean. A component
    that does not apply to a rollout adds 0 to it. Which rollouts are valid, and the metrics, are
    those of the composed rewards.

    Correctness 0, 0, 1, 1 and a bonus of 0, 100, 0, 100 in one group, weights 1 and 1: sums are
    ruled by the bonus, here rollouts 2 and 3 are worth the same (0), and 1 and 4 are -/+1.225.

    Raises ValueError where the inputs have no components.
    """
    if not inputs.component_rewards:
        raise ValueError("gdpo needs the components of the rewards")
    siblings = find_siblings(inputs)
    total = np.zeros(inputs.num_rollouts, dtype=np.float64)
    for name, values in inputs.component_rewards.items():
        weight = inputs.component_weights[name]
        if not weight:
            continue
        applies = siblings.is_valid & ~np.isnan(values)
        alone, _ = compare(
            replace(inputs, rewards=np.where(applies, values, 0.0), is_scored=applies),
            lambda rewards, _members: normalize(rewards, by_std=norm_adv_by_std_in_grpo, eps=eps),
        )
        total += weight * alone
    return broadcast(inputs, _whitened(total, siblings.is_valid, eps=eps), siblings)


def _whitened(total: Floats, valid: Bools, *, eps: float) -> Floats:
    whitened = np.zeros_like(total)
    kept = total[valid]
    # Advantages are of order 1: a spread far below is what eps left of a cancelled sum.
    if kept.size > 1 and (spread := kept.std(ddof=1)) > _NOISE:
        whitened[valid] = (kept - kept.mean()) / (spread + eps)
    return whitened
