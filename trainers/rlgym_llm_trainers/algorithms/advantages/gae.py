"""Generalised advantage estimation: from token rewards and a critic's values."""

from __future__ import annotations

import numpy as np

from rlgym_llm_trainers.algorithms.advantages.inputs import (
    AdvantageInputs,
    Advantages,
    Bools,
    Floats,
)
from rlgym_llm_trainers.algorithms.advantages.whiten import whiten

__all__ = ["gae", "lambda_advantages"]


def gae(inputs: AdvantageInputs, *, gamma: float = 1.0, lam: float = 1.0) -> Advantages:
    """``A_t = delta_t + gamma lam A_{t+1}``, ``delta_t = r_t + gamma V_{t+1} - V_t`` (1506.02438).

    ``t + 1`` is the next *sampled* token: V and A are carried through prompts of later turns and
    observations, whose own values never enter. After the last one stands ``bootstrap_values``: 0
    where the episode ended, V of the state after it where a budget cut it off. The returns
    ``A + V`` are taken first, then the advantages are whitened over all sampled tokens.

    For "2 + 3 = " the state is the prompt and the tokens so far, the actions "5" and end-of-text:
    rewards 0, 1 and values .5, .5 give deltas 0, .5, and with lam = 1 advantages .5, .5.
    """
    if inputs.values is None:
        raise ValueError("gae needs the values of a critic")
    is_valid = inputs.is_scored
    mask = inputs.mask & is_valid[:, None]
    found = lambda_advantages(
        inputs.token_rewards,
        inputs.values,
        mask,
        gamma=gamma,
        lam=lam,
        bootstrap_values=inputs.bootstrap_values,
    )
    returns = np.where(mask, found + inputs.values, 0.0)
    return Advantages.on_tokens(inputs, whiten(found, mask), is_valid).with_returns(returns)


def lambda_advantages(
    token_rewards: Floats,
    values: Floats,
    mask: Bools,
    *,
    gamma: float,
    lam: float,
    bootstrap_values: Floats | None = None,
) -> Floats:
    """The advantages of GAE [N, T] before whitening, 0 off the mask.

    >>> rewards, values = np.array([[0.0, 0.0, 2.0, 0.0]]), np.array([[0.5, 0.4, 0.3, 50.0]])
    >>> mask = np.array([[True, True, True, False]])
    >>> lambda_advantages(rewards, values, mask, gamma=1.0, lam=0.9).round(3).tolist()
    [[1.187, 1.43, 1.7, 0.0]]
    """
    found = np.zeros(mask.shape, dtype=np.float64)
    advantage = np.zeros(len(mask), dtype=np.float64)
    value = advantage if bootstrap_values is None else bootstrap_values
    for t in reversed(range(mask.shape[1])):
        is_sampled = mask[:, t]
        delta = token_rewards[:, t] + gamma * value - values[:, t]
        advantage = np.where(is_sampled, delta + gamma * lam * advantage, advantage)
        value = np.where(is_sampled, values[:, t], value)
        found[:, t] = np.where(is_sampled, advantage, 0.0)
    return found
