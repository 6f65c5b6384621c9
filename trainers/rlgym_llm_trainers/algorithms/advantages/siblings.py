"""Siblings: the rollouts of one prompt, found by their group id and compared with each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlgym_llm_trainers.algorithms.advantages.inputs import (
    AdvantageInputs,
    Advantages,
    Bools,
    Floats,
)
from rlgym_llm_trainers.algorithms.metrics import Metric

__all__ = [
    "Siblings",
    "broadcast",
    "check_eps",
    "compare",
    "deviations",
    "find_siblings",
    "normalize",
    "std_of",
]

Members = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Siblings:
    """The groups that can be compared: those with at least two scored rollouts."""

    groups: tuple[Members, ...]
    """The scored members of each, as rows of the inputs."""
    is_valid: Bools  # [N]
    """False where a rollout is unscored or has no scored sibling."""
    metrics: dict[str, Metric]
    """``group_reward_std``: mean over those groups; ``frac_reward_zero_std``: the share whose
    rewards are all equal; ``num_dropped_groups``: those that were left out."""


def find_siblings(inputs: AdvantageInputs) -> Siblings:
    """The comparable groups, in the order in which their ids first appear.

    >>> found = find_siblings(AdvantageInputs.of_rewards([1, 2, None, 3], ["p", "q", "q", "p"]))
    >>> [members.tolist() for members in found.groups], found.is_valid.tolist()
    ([[0, 3]], [True, False, False, True])
    """
    scored: dict[str, list[int]] = {group_id: [] for group_id in inputs.group_ids}
    for index, group_id in enumerate(inputs.group_ids):
        if inputs.is_scored[index]:
            scored[group_id].append(index)
    groups = tuple(np.array(members) for members in scored.values() if len(members) >= 2)
    is_valid = np.zeros(inputs.num_rollouts, dtype=bool)
    for members in groups:
        is_valid[members] = True
    rewards = inputs.sequence_rewards
    stds = [std_of(deviations(rewards[members])) for members in groups]
    return Siblings(
        groups=groups,
        is_valid=is_valid,
        metrics={
            "group_reward_std": Metric.mean(sum(stds), len(stds)),
            "frac_reward_zero_std": Metric.mean(sum(std == 0.0 for std in stds), len(stds)),
            "num_dropped_groups": Metric.sum(len(scored) - len(groups)),
        },
    )


def compare(
    inputs: AdvantageInputs, relative: Callable[[Floats, Members], Floats]
) -> tuple[Floats, Siblings]:
    """One advantage a rollout [N] by ``relative(rewards, members)`` in each group, else 0."""
    siblings, rewards = find_siblings(inputs), inputs.sequence_rewards
    found = np.zeros(inputs.num_rollouts, dtype=np.float64)
    for members in siblings.groups:
        found[members] = relative(rewards[members], members)
    return found, siblings


def broadcast(inputs: AdvantageInputs, values: Floats, siblings: Siblings) -> Advantages:
    """The advantages [N] of compared siblings on their tokens."""
    return Advantages.broadcast(inputs, values, siblings.is_valid, siblings.metrics)


def deviations(values: Floats) -> Floats:
    """The deviations from the mean; exactly 0 where all values are equal."""
    if values.max() == values.min():
        # Asked of the values, since the mean of equal numbers may round to another one.
        return np.zeros(len(values), dtype=np.float64)
    centred: Floats = values - values.mean()
    return centred


def std_of(centred: Floats) -> float:
    """The unbiased standard deviation of at least two values, given their deviations."""
    return math.sqrt(float(np.square(centred).sum()) / (len(centred) - 1))


def check_eps(eps: float) -> None:
    """Raises ValueError unless what a division is kept from 0 with is above it."""
    if not eps > 0:
        raise ValueError(f"eps must be above 0, got {eps}")


def normalize(values: Floats, *, by_std: bool, eps: float) -> Floats:
    """``(x - mean) / (std + eps)``, or ``x - mean``; eps above 0, else ValueError.

    >>> normalize(np.array([1.0, 0, 0, 0]), by_std=True, eps=1e-6).round(3).tolist()
    [1.5, -0.5, -0.5, -0.5]
    """
    check_eps(eps)
    centred = deviations(values)
    return centred / (std_of(centred) + eps) if by_std else centred
