"""What a loss returns: a scalar to call ``backward`` on, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded
from rlgym_llm_trainers.algorithms.metrics import Metric

__all__ = ["LossOutput", "numbers", "policy_output"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossOutput:
    """A scalar to call ``backward`` on, and metrics as partial sums of this part of the batch."""

    loss: Tensor
    metrics: Mapping[str, Metric]


def policy_output(
    loss: Tensor, log_ratio: Tensor, mask: Tensor, shares: Mapping[str, Tensor] | None = None
) -> LossOutput:
    """A policy loss with its metrics: ``actor/pg_loss``, ``actor/ppo_kl`` and shares of tokens.

    ``log_ratio`` [B, T] is 0 off the mask; ``ppo_kl`` is the mean of old_logprob - logprob over the
    trained tokens, each clamped to +-20 under every loss. ``shares`` are bool streams [B, T] under
    the names that they are logged as.
    """
    shares = shares or {}
    # One transfer from the device for all the numbers.
    total, kl, count, *found = numbers(
        loss, -bounded(log_ratio).sum(), mask.sum(), *(share.sum() for share in shares.values())
    )
    metrics = {"actor/pg_loss": Metric.sum(total), "actor/ppo_kl": Metric.mean(kl, count)}
    for name, number in zip(shares, found, strict=True):
        metrics[name] = Metric.mean(number, count)
    return LossOutput(loss=loss, metrics=metrics)


def numbers(*scalars: Tensor) -> list[float]:
    """The values of scalars, in float64 and by one transfer from the device."""
    values: list[float] = torch.stack([scalar.detach().double() for scalar in scalars]).tolist()
    return values
