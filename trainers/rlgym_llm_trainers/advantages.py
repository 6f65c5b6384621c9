"""Advantages from the rewards of siblings: statistics in float64, groups by id."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlgym_llm_trainers.metrics import Metric

__all__ = ["GroupAdvantages", "grpo_advantages"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupAdvantages:
    """One advantage per rollout, in the order of the rewards given."""

    advantages: NDArray[np.float64]  # [N]
    """0 where not valid."""
    is_valid: NDArray[np.bool_]  # [N]
    """False for rollouts that must leave the loss and its denominators."""
    metrics: Mapping[str, Metric]


def grpo_advantages(
    rewards: Sequence[float | None],
    group_ids: Sequence[str],
    *,
    norm_by_std: bool = True,
    eps: float = 1e-6,
) -> GroupAdvantages:
    """Group-relative advantages, ``(r - mean) / (std + eps)`` (arXiv 2402.03300).

    Siblings are found by their group id, never by their position. A reward of None (unscored)
    leaves the mean and the std, its rollout is not valid. A group with fewer than two scored
    siblings has no baseline: all of it is not valid. Equal rewards give exactly 0, and no
    advantage exceeds ``sqrt(G - 1)`` for G siblings.

    Args:
        rewards: one per rollout, or None where it was not scored.
        group_ids: the group of each rollout.
        norm_by_std: False gives ``r - mean`` (Dr.GRPO).
        eps: added to the std.

    Metrics: ``group_reward_std`` (mean over groups with a std), ``frac_reward_zero_std`` (the
    share of those whose rewards are all equal), ``num_unscored`` rollouts, ``num_dropped``
    rollouts that are not valid for either reason, ``num_dropped_groups``. Look at the std beside
    the advantages: rewards .61, .60, .62, .61 are noise, yet their advantages reach 1.2.

    Raises ValueError for NaN or infinite rewards and for lengths that differ.

    >>> result = grpo_advantages([0, 1, 100, 0, 100, None], ["a", "b", "a", "a", "a", "b"])
    >>> result.advantages.round(3).tolist()
    [-0.866, 0.0, 0.866, -0.866, 0.866, 0.0]
    >>> result.is_valid.tolist()
    [True, False, True, True, True, False]
    """
    if len(rewards) != len(group_ids):
        raise ValueError(f"{len(rewards)} rewards but {len(group_ids)} group ids")
    if not eps > 0:
        raise ValueError(f"eps must be above 0, got {eps}")
    for index, reward in enumerate(rewards):
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"reward {index} is {reward}; a reward is finite, or None if unscored")

    scored: dict[str, list[int]] = {group_id: [] for group_id in group_ids}
    for index, group_id in enumerate(group_ids):
        if rewards[index] is not None:
            scored[group_id].append(index)

    advantages = np.zeros(len(rewards), dtype=np.float64)
    is_valid = np.zeros(len(rewards), dtype=bool)
    stds: list[float] = []
    for members in scored.values():
        if len(members) < 2:
            continue
        values = np.array([rewards[index] for index in members], dtype=np.float64)
        deviations, std = _center(values)
        stds.append(std)
        advantages[members] = deviations / (std + eps if norm_by_std else 1.0)
        is_valid[members] = True
    return GroupAdvantages(
        advantages=advantages,
        is_valid=is_valid,
        metrics=_metrics(rewards, is_valid, stds, num_groups=len(scored)),
    )


def _center(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The deviations from a group's mean, and its unbiased std: exactly 0 where all are equal."""
    if values.max() == values.min():
        # Asked of the values, since the mean of equal numbers may round to another one.
        return np.zeros(len(values)), 0.0
    deviations = values - values.mean()
    return deviations, math.sqrt(float(np.square(deviations).sum()) / (len(values) - 1))


def _metrics(
    rewards: Sequence[float | None],
    is_valid: NDArray[np.bool_],
    stds: Sequence[float],
    *,
    num_groups: int,
) -> dict[str, Metric]:
    num_constant = sum(std == 0.0 for std in stds)
    return {
        "group_reward_std": Metric.mean(sum(stds), len(stds)),
        "frac_reward_zero_std": Metric.mean(num_constant, len(stds)),
        "num_unscored": Metric.sum(sum(reward is None for reward in rewards)),
        "num_dropped": Metric.sum(int((~is_valid).sum())),
        "num_dropped_groups": Metric.sum(num_groups - len(stds)),
    }
