"""PPO's clipped surrogate (arXiv 1707.06347) with the dual clip (1912.09729)."""

from __future__ import annotations

import torch
from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.clips import clip_shares
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output

__all__ = ["clipped_surrogate", "ppo_clip_loss"]


def ppo_clip_loss(
    inputs: PolicyLossInputs,
    *,
    reduce: Reduce,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    clip_c: float | None = 3.0,
) -> LossOutput:
    """PPO's clipped surrogate, of each token's own ratio.

    Per token, with ratio = exp(logprob - old_logprob), the log-ratio clamped to +-20::

        L = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high)),  for A < 0 at most -A clip_c

    A = 2, ratio 1.6, clip .2: max(-3.2, -2.4) = -2.4. A = -1, ratio 10: 10, with clip_c 3 only 3.
    The value is 0 for centred advantages at ratio 1; its gradient is not.

    Args:
        inputs: the streams.
        reduce: token losses and mask to a scalar.
        clip_low: how far below 1 the ratio of a token with A < 0 counts.
        clip_high: how far above 1 the ratio of a token with A > 0 counts.
        clip_c: bound of the ratio for A < 0, above 1; None for no dual clip.

    Metrics: ``actor/pg_loss``; over tokens ``actor/pg_clipfrac`` (effective: high side only where
    A > 0, low side only where A < 0), its two parts ``actor/clip_ratio/{high,low}_mean``,
    ``actor/pg_clipfrac_lower`` (the dual clip's, normally 0) and ``actor/ppo_kl`` (mean of
    old_logprob - logprob).
    """
    if clip_c is not None and not clip_c > 1:
        raise ValueError(f"clip_c bounds the ratio and must be above 1, got {clip_c}")
    mask = inputs.mask.bool()
    advantages = masked(inputs.advantages, mask)
    log_ratio = bounded(token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask))
    losses, shares = clipped_surrogate(
        advantages, log_ratio.exp(), clip_low=clip_low, clip_high=clip_high
    )
    is_dual_clipped = torch.zeros_like(mask)
    if clip_c is not None:
        bound = -advantages * clip_c
        is_dual_clipped = (advantages < 0) & (losses > bound)
        losses = torch.where(advantages < 0, torch.minimum(losses, bound), losses)
    shares["actor/pg_clipfrac_lower"] = is_dual_clipped
    return policy_output(reduce(losses, mask), log_ratio, mask, shares)


def clipped_surrogate(
    advantages: Tensor, ratio: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Token losses ``max(-A ratio, -A clip(ratio))`` [B, T], and which of them are clipped.

    Advantages are 0 off the mask, which then counts as unclipped. Raises ValueError for bounds that
    make no sense.
    """
    if not 0 <= clip_low < 1 or clip_high < 0:
        raise ValueError(f"clip_low {clip_low} must be in [0, 1) and clip_high {clip_high} >= 0")
    losses = torch.maximum(
        -advantages * ratio, -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    )
    is_high = (advantages > 0) & (ratio > 1 + clip_high)
    is_low = (advantages < 0) & (ratio < 1 - clip_low)
    return losses, clip_shares(is_high, is_low)
