"""The log-ratio of the policy that learns to the one that sampled."""

from __future__ import annotations

from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import masked
from rlgym_llm_trainers.algorithms.kl import LOG_RATIO_CLAMP

__all__ = ["bounded", "token_log_ratio"]


def token_log_ratio(logprobs: Tensor, old_logprobs: Tensor | None, mask: Tensor) -> Tensor:
    """Logprobs - old_logprobs [B, T], 0 off the mask; gradient flows through ``logprobs`` alone.

    Masked before the subtraction, so that no NaN has a derivative. Not bounded: see `bounded`.
    """
    current = masked(logprobs, mask)
    old = current if old_logprobs is None else masked(old_logprobs, mask)
    return current - old.detach()


def bounded(log_ratio: Tensor) -> Tensor:
    """The log-ratio clamped to +-20, ready for ``exp``: finite, and without gradient beyond."""
    return log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
