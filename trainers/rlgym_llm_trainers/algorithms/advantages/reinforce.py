"""Estimators of the REINFORCE family: what a token and those after it earn, against a baseline."""

from __future__ import annotations

import numpy as np

from rlgym_llm_trainers.algorithms.advantages.inputs import (
    AdvantageInputs,
    Advantages,
    Bools,
    Floats,
)
from rlgym_llm_trainers.algorithms.advantages.siblings import compare, deviations
from rlgym_llm_trainers.algorithms.advantages.whiten import whiten

__all__ = ["reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "reward_to_go"]


def reinforce_plus_plus(inputs: AdvantageInputs, *, gamma: float = 1.0) -> Advantages:
    """``A_t = whiten(sum_{s >= t} gamma^(s - t) r_s)`` over all sampled tokens (2501.03262).

    No siblings are needed. s - t counts sampled tokens alone, so that an observation between two
    turns discounts nothing.

    Two rollouts of one token, rewards 1 and 3: -.707 and .707.
    """
    is_valid = inputs.is_scored
    returns = reward_to_go(inputs.token_rewards, inputs.mask & is_valid[:, None], gamma=gamma)
    whitened = whiten(returns, inputs.mask & is_valid[:, None])
    return Advantages.on_tokens(inputs, whitened, is_valid)


def reinforce_plus_plus_baseline(inputs: AdvantageInputs) -> Advantages:
    """``A = whiten(R - mean of the siblings)`` over all sampled tokens (2501.03262).

    The variance is that of the whole batch, so a group of small spread stays small. Rewards
    1, 0 and 5, 5 in two groups of one token each: .5, -.5, 0, 0 over .408, so 1.22, -1.22, 0, 0.
    """
    found, siblings = compare(inputs, lambda rewards, _members: deviations(rewards))
    spread = np.broadcast_to(found[:, None], inputs.mask.shape)
    whitened = whiten(spread, inputs.mask & siblings.is_valid[:, None])
    return Advantages.on_tokens(inputs, whitened, siblings.is_valid, siblings.metrics)


def remax(inputs: AdvantageInputs) -> Advantages:
    """``A_t = sum_{s >= t} r_s - R(greedy)``: the greedy sibling is the baseline (2310.10505).

    A rollout whose greedy sibling has no reward (NaN) is not valid. Reward 1 on the last token,
    baseline .25: .75 on every token.
    """
    if inputs.baselines is None:
        raise ValueError("remax needs the rewards of greedy siblings as baselines")
    is_valid = inputs.is_scored & np.isfinite(inputs.baselines)
    returns = reward_to_go(inputs.token_rewards, inputs.mask & is_valid[:, None], gamma=1.0)
    return Advantages.on_tokens(inputs, returns - inputs.baselines[:, None], is_valid)


def reward_to_go(token_rewards: Floats, mask: Bools, *, gamma: float) -> Floats:
    """``sum_{s >= t} gamma^(s - t) r_s`` over the sampled tokens of each row [N, T], 0 elsewhere.

    >>> mask = np.array([[True, True, False, True]])
    >>> reward_to_go(np.array([[0.0, 1.0, np.nan, 4.0]]), mask, gamma=0.5).tolist()
    [[1.5, 3.0, 0.0, 4.0]]
    """
    returns = np.zeros(mask.shape, dtype=np.float64)
    so_far = np.zeros(len(mask), dtype=np.float64)
    for t in reversed(range(mask.shape[1])):
        is_sampled = mask[:, t]
        so_far = np.where(is_sampled, token_rewards[:, t] + gamma * so_far, so_far)
        returns[:, t] = np.where(is_sampled, so_far, 0.0)
    return returns
