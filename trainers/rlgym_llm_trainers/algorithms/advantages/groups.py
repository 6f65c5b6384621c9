"""Estimators that compare the rewards of siblings and give each of their tokens the same."""

from __future__ import annotations

import numpy as np

from rlgym_llm.errors import UserError
from rlgym_llm_trainers.algorithms.advantages.inputs import AdvantageInputs, Advantages, Floats
from rlgym_llm_trainers.algorithms.advantages.siblings import (
    Members,
    broadcast,
    check_eps,
    compare,
    deviations,
    normalize,
)

__all__ = ["dr_grpo", "gpg", "grpo", "maxrl", "opo", "rloo"]


def grpo(
    inputs: AdvantageInputs, *, norm_adv_by_std_in_grpo: bool = True, eps: float = 1e-6
) -> Advantages:
    """``A = (R - mean) / (std + eps)`` over the scored siblings, unbiased std (arXiv 2402.03300).

    Equal rewards give exactly 0, and no advantage exceeds ``sqrt(G - 1)`` for G siblings. A group
    with fewer than two scored siblings has no baseline: all of it is not valid.

    Look at ``group_reward_std`` beside the advantages: rewards .61, .60, .62, .61 are noise, yet
    their advantages reach 1.2.

    >>> rewards, groups = [0, 1, 100, 0, 100, None], ["a", "b", "a", "a", "a", "b"]
    >>> found = grpo(AdvantageInputs.of_rewards(rewards, groups))
    >>> found.advantages[:, 0].round(3).tolist()
    [-0.866, 0.0, 0.866, -0.866, 0.866, 0.0]
    >>> found.is_valid.tolist()
    [True, False, True, True, True, False]
    """

    def relative(rewards: Floats, _members: Members) -> Floats:
        return normalize(rewards, by_std=norm_adv_by_std_in_grpo, eps=eps)

    return broadcast(inputs, *compare(inputs, relative))


def dr_grpo(inputs: AdvantageInputs) -> Advantages:
    """``A = R - mean``: GRPO without the std, which favours groups of little spread (2503.20783).

    Its loss divides by a constant: ``actor.loss_agg_mode seq-mean-token-sum-norm``. Rewards
    3, 1, 1, 1 give 1.5, -.5, -.5, -.5.
    """
    return grpo(inputs, norm_adv_by_std_in_grpo=False)


def rloo(inputs: AdvantageInputs) -> Advantages:
    """``A_i = R_i - mean of the others = G / (G - 1) (R_i - mean)`` (arXiv 2402.14740).

    Rewards 3, 1, 1, 1 give 2, -.667, -.667, -.667.
    """

    def relative(rewards: Floats, _members: Members) -> Floats:
        return len(rewards) / (len(rewards) - 1) * deviations(rewards)

    return broadcast(inputs, *compare(inputs, relative))


def gpg(inputs: AdvantageInputs) -> Advantages:
    """``A = B / B' (R - mean)``, B' of the B rollouts being in groups that differ (2504.02546).

    So that a step's gradient does not shrink with its share of groups that carry no signal. Made
    for the policy loss ``gpg``. verl divides by the number of rewards that are not 0 instead, which
    another zero point of the reward changes.

    Rewards 1, 0 in one group and 1, 1 in another: 4 / 2 * (.5, -.5) and 0, 0.
    """
    found, siblings = compare(inputs, lambda rewards, _members: deviations(rewards))
    num_pulling = sum(len(members) for members in siblings.groups if found[members].any())
    num_valid = int(siblings.is_valid.sum())
    return broadcast(inputs, found * (num_valid / max(num_pulling, 1)), siblings)


def opo(inputs: AdvantageInputs) -> Advantages:
    """``A = R - sum(l R) / sum(l)``: the baseline of least variance, l sampled tokens (2505.23585).

    Rewards 1, 0 at lengths 1, 3: the baseline is .25, the advantages .75 and -.25.
    """
    lengths = inputs.mask.sum(-1).astype(np.float64)

    def relative(rewards: Floats, members: Members) -> Floats:
        weights = lengths[members]
        if rewards.max() == rewards.min() or not weights.any():
            return np.zeros_like(rewards)
        baseline = float((weights * rewards).sum() / weights.sum())
        return rewards - baseline

    return broadcast(inputs, *compare(inputs, relative))


def maxrl(inputs: AdvantageInputs, *, eps: float = 1e-6) -> Advantages:
    """``A = (R - mean) / (mean + eps)``: maximum likelihood, hard prompts weigh more (2602.02710).

    For rewards of at least 0, such as right or wrong; then no advantage exceeds G - 1. UserError
    for a negative one, whose mean may be anything. Rewards 1, 0, 0, 0 give 3, -1, -1, -1.
    """
    check_eps(eps)

    def relative(rewards: Floats, _members: Members) -> Floats:
        if rewards.min() < 0:
            raise UserError(
                f"adv_estimator maxrl divides by a group's mean reward, and a reward is "
                f"{rewards.min():.6g}; give rewards of at least 0, or take grpo"
            )
        return deviations(rewards) / (float(rewards.mean()) + eps)

    return broadcast(inputs, *compare(inputs, relative))
