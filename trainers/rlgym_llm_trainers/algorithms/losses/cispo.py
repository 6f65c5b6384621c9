"""CISPO: REINFORCE with a clipped importance weight (arXiv 2506.13585)."""

from __future__ import annotations

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.clips import check_clips
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output

__all__ = ["cispo_loss"]


def cispo_loss(
    inputs: PolicyLossInputs, *, reduce: Reduce, clip_low: float = 1.0, clip_high: float = 0.2
) -> LossOutput:
    """Minus ``sg(clip(ratio, 1 - clip_low, 1 + clip_high)) A logprob`` of each token.

    The weight is clipped and no gradient flows through it, so that no token loses its gradient, as
    it does under PPO's clip. ``clip_low`` 1 or above is no lower bound. Ratio 3, A = 2, clip_high
    .2: the gradient by the log-prob is -1.2 * 2 = -2.4.

    The value depends on the log-prob and is no objective to watch. Metrics: ``actor/pg_loss``,
    ``actor/ppo_kl`` and ``actor/pg_clipfrac``, the share of tokens whose weight is clipped.
    """
    check_clips(clip_low, clip_high)
    mask = inputs.mask.bool()
    log_ratio = bounded(token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask))
    ratio = log_ratio.detach().exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = -weight * masked(inputs.advantages, mask) * masked(inputs.logprobs, mask)
    shares = {"actor/pg_clipfrac": mask & (weight != ratio)}
    return policy_output(reduce(losses, mask), log_ratio, mask, shares)
