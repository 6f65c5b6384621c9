"""GMPO: the geometric mean of a sequence's clipped ratios (arXiv 2507.20673)."""

from __future__ import annotations

import torch

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked, sequence_means
from rlgym_llm_trainers.algorithms.losses.clips import check_clips, clip_shares
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output

__all__ = ["gmpo_loss"]


def gmpo_loss(
    inputs: PolicyLossInputs, *, reduce: Reduce, clip_low: float = 0.4, clip_high: float = 0.4
) -> LossOutput:
    """Minus the advantage times the geometric mean of the token ratios, each clipped by its sign.

    With d = logprob - old_logprob of a token, over the mask of a sequence::

        d' = min(d, clip_high) where A > 0,  max(d, -clip_low) where A < 0
        L = -mean(A) exp(mean(d'))

    The clips are of the *log*-ratio, .4 as published. Every token of a sequence carries its
    sequence's L, so ``seq-mean-token-mean``, as published, is the mean over sequences. A = 1,
    d = (.1, .7): d' = (.1, .4), L = -exp(.25) = -1.2840; the second token has no gradient.

    Metrics: ``actor/pg_loss``, ``actor/ppo_kl``, and ``actor/pg_clipfrac`` with its two parts
    ``actor/clip_ratio/{high,low}_mean`` over tokens.
    """
    check_clips(clip_low, clip_high)
    mask = inputs.mask.bool()
    advantages = masked(inputs.advantages, mask)
    log_ratio = token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask)
    is_high = (advantages > 0) & (log_ratio > clip_high)
    is_low = (advantages < 0) & (log_ratio < -clip_low)
    clipped = torch.where(is_high, clip_high, torch.where(is_low, -clip_low, log_ratio))
    ratio = bounded(sequence_means(clipped, mask)).exp()  # [B, 1]
    losses = (-sequence_means(advantages, mask) * ratio).expand_as(mask)
    return policy_output(reduce(losses, mask), log_ratio, mask, clip_shares(is_high, is_low))
