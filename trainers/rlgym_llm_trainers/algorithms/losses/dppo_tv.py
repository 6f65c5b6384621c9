"""DPPO: a bound on the change of the probability, not of the ratio (arXiv 2602.04879)."""

from __future__ import annotations

import torch

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.clips import check_clips, clip_shares
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output

__all__ = ["dppo_tv_loss"]


def dppo_tv_loss(
    inputs: PolicyLossInputs,
    *,
    reduce: Reduce,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    max_ratio: float = 20.0,
) -> LossOutput:
    """Minus ``sg(min(ratio, max_ratio)) A logprob`` of the tokens that may still move.

    With p = exp(logprob) and q = exp(old_logprob), a token trains unless A > 0 and p - q >
    ``clip_high``, or A < 0 and p - q < -``clip_low``: a bound on the total variation, under which
    rare tokens move freely, however large their ratio, and likely ones little. q = .5, p = .8,
    A = 1: no gradient; q = .01, p = .05: weight 5, which a clipped ratio would have stopped.

    Metrics: ``actor/pg_loss``, ``actor/ppo_kl`` and ``actor/pg_clipfrac`` with its two parts
    ``actor/clip_ratio/{high,low}_mean``: the tokens that do not train.
    """
    check_clips(clip_low, clip_high)
    if not max_ratio > 0:
        raise ValueError(f"max_ratio {max_ratio} must be above 0")
    mask = inputs.mask.bool()
    advantages, logprobs = masked(inputs.advantages, mask), masked(inputs.logprobs, mask)
    log_ratio = token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask)
    with torch.no_grad():
        moved = logprobs.exp() - (logprobs - log_ratio).exp()
        is_high = (advantages > 0) & (moved > clip_high)
        is_low = (advantages < 0) & (moved < -clip_low)
        weight = masked(bounded(log_ratio).exp().clamp(max=max_ratio), ~(is_high | is_low))
    loss = reduce(-weight * advantages * logprobs, mask)
    return policy_output(loss, log_ratio, mask, clip_shares(is_high, is_low))
