"""GSPO: the clipped surrogate with one ratio for a whole sequence (arXiv 2507.18071)."""

from __future__ import annotations

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked, sequence_means
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output
from rlgym_llm_trainers.algorithms.losses.ppo_clip import clipped_surrogate

__all__ = ["gspo_loss"]


def gspo_loss(
    inputs: PolicyLossInputs, *, reduce: Reduce, clip_low: float = 3e-4, clip_high: float = 4e-4
) -> LossOutput:
    """PPO's clipped surrogate of the sequence's ratio, the geometric mean of its tokens' ratios.

    In its token form, which lets advantages differ within a sequence; sg is the detached value::

        s = exp(mean over the sequence's mask of (logprob - old_logprob))
        s_t = sg(s) p_t / sg(p_t),  L_t = max(-A s_t, -A clip(s_t, 1 - clip_low, 1 + clip_high))

    So s_t has the value of s, and each token its own gradient, -A s / (number of tokens) of it in
    a mean over the sequence. Log-ratios (.1, .3), A = 1: s = exp(.2) = 1.2214, clipped to 1.0004.

    The mean is clamped to +-20, never a single token: (90, -90) is a sequence of ratio 1.

    Published with ``actor.loss_agg_mode seq-mean-token-mean`` and these clips, a thousand times
    tighter than those of single tokens. Metrics are those of `ppo_clip_loss`, without dual clip.
    """
    mask = inputs.mask.bool()
    log_ratio = token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask)
    of_sequence = sequence_means(log_ratio.detach(), mask)  # [B, 1]
    current = masked(inputs.logprobs, mask)
    # The difference first: it is exactly 0, so that the sum has the value of the mean to the bit.
    ratio = bounded(masked((current - current.detach()) + of_sequence, mask)).exp()
    losses, shares = clipped_surrogate(
        masked(inputs.advantages, mask), ratio, clip_low=clip_low, clip_high=clip_high
    )
    return policy_output(reduce(losses, mask), log_ratio, mask, shares)
