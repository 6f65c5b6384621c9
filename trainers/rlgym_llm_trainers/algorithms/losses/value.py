"""The critic's loss, and how much of the returns its values explain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rlgym_llm.moments import Moments
from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, numbers
from rlgym_llm_trainers.algorithms.metrics import Metric, MetricKind

__all__ = ["ExplainedVariance", "value_loss"]


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    reduce: Reduce,
    clip: float | None = 0.5,
) -> LossOutput:
    """Half the squared error of the values, clipped around the old ones (arXiv 1506.02438, PPO).

    All [B, T]; gradient flows through ``values`` alone, V of the state before each token::

        L = 1/2 max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2)

    V = 2, V_old = 0, R = 1, clip .5: max(1, .25) / 2 = .5. With R = 3: max(1, 6.25) / 2 = 3.125 and
    no gradient, since V has moved far enough. ``clip`` None is the plain error.

    Metrics: ``critic/vf_loss``, and over tokens ``critic/vf_clipfrac`` (where the clipped error is
    the larger one) and ``critic/vpred_mean``.
    """
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be above 0, got {clip}; None for no clip")
    mask = mask.bool()
    values = masked(values, mask)
    old_values, returns = masked(old_values.detach(), mask), masked(returns.detach(), mask)
    errors = (values - returns).square()
    is_clipped = torch.zeros_like(mask)
    if clip is not None:
        near = torch.maximum(torch.minimum(values, old_values + clip), old_values - clip)
        clipped = (near - returns).square()
        is_clipped = clipped > errors
        errors = torch.maximum(errors, clipped)
    loss = 0.5 * reduce(errors, mask)
    total, num_clipped, predicted, count = numbers(loss, is_clipped.sum(), values.sum(), mask.sum())
    return LossOutput(
        loss=loss,
        metrics={
            "critic/vf_loss": Metric.sum(total),
            "critic/vf_clipfrac": Metric.mean(num_clipped, count),
            "critic/vpred_mean": Metric.mean(predicted, count),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedVariance(Metric):
    """``1 - Var(returns - values) / Var(returns)`` over the tokens of all parts that were merged.

    1 is a perfect critic, 0 one that knows the mean only; below 0 it is worse than that. Parts
    merge by their moments: a mean of the parts' own figures would be another number. NaN where the
    returns do not vary, which no critic can explain: 1 - 1 / 1e-5 would be an alarm about nothing.

    >>> mask = torch.tensor([[True, True, True, True]])
    >>> values = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    >>> ExplainedVariance.of(values, torch.tensor([[0.0, 1.0, 2.0, 5.0]]), mask).result()
    0.7857142857142857
    """

    errors: Moments
    """Of returns - values."""
    returns: Moments

    @classmethod
    def of(cls, values: Tensor, returns: Tensor, mask: Tensor) -> Self:
        """The state of one part, all [B, T]. Raises ValueError where a token's is not finite."""
        mask = mask.bool()
        found, right = values[mask].detach().double().cpu(), returns[mask].detach().double().cpu()
        return cls._over(Moments.of((right - found).numpy()), Moments.of(right.numpy()))

    @classmethod
    def _over(cls, errors: Moments, returns: Moments) -> Self:
        count = float(returns.count)
        kind = MetricKind.EXPLAINED_VARIANCE
        return cls(kind=kind, value=errors.m2, count=count, errors=errors, returns=returns)

    def merge(self, other: Metric) -> Self:
        """Over the tokens of both; ValueError where the other is no explained variance."""
        if not isinstance(other, ExplainedVariance):
            raise ValueError(f"a {self.kind} metric does not merge with a {other.kind}")
        return self._over(self.errors.merge(other.errors), self.returns.merge(other.returns))

    def result(self) -> float:
        """The number to log; NaN where the returns do not vary beyond their rounding."""
        rounding = 1e-6 * self.returns.mean
        rounding = max(1e-8, rounding * rounding)  # ** 2 raises where this is infinity
        if not self.returns.variance > rounding:  # of fewer than two returns it is NaN
            return math.nan
        return 1 - self.errors.m2 / self.returns.m2
