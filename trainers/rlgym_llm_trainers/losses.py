"""Policy losses over [B, T] tensors: pure functions that return a loss and its metrics.

``reduce`` is `aggregate.aggregate` with the step's denominators bound, the same one for every term,
so that a coefficient means the same beside short and long answers.

Samples of another policy come with weights, and those are the business of `WeightedReduce` alone: a
policy loss returns token losses as it would on-policy and calls the ``reduce`` it is given, which
weighs them. So every registered loss is corrected, also one whose author never heard of weights,
and none can weigh twice or let gradient flow through a weight, as it could were the weights among
its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rlgym_llm_trainers.aggregate import Reduce, masked
from rlgym_llm_trainers.kl import LOG_RATIO_CLAMP, KlKind, is_clamped, kl_penalty
from rlgym_llm_trainers.metrics import Metric

__all__ = [
    "LossOutput",
    "PolicyLossInputs",
    "WeightedReduce",
    "entropy_loss",
    "kl_loss",
    "ppo_clip_loss",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyLossInputs:
    """What a policy loss may look at. Masked positions may hold anything, NaN included."""

    logprobs: Tensor  # [B, T]
    """Of the policy that learns; the only one that gradient flows through."""
    old_logprobs: Tensor | None  # [B, T]
    """Of the policy that sampled. None where that is the one that learns: the ratio is 1."""
    advantages: Tensor  # [B, T]
    mask: Tensor  # [B, T], bool
    """True on the tokens that were sampled and are trained; rejected ones are not."""

    def __post_init__(self) -> None:
        for name in ("old_logprobs", "advantages", "mask"):
            value = getattr(self, name)
            if value is not None and value.shape != self.logprobs.shape:
                raise ValueError(
                    f"{name} has shape {tuple(value.shape)}, "
                    f"logprobs {tuple(self.logprobs.shape)}: every stream is [B, T] of whole "
                    "sequences, prompt included"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossOutput:
    """A scalar to call ``backward`` on, and metrics as partial sums of this part of the batch."""

    loss: Tensor
    metrics: Mapping[str, Metric]


class WeightedReduce:
    """A ``reduce`` that multiplies the token losses by their weights, and divides as before.

    Args:
        reduce: the step's own.
        mask: [B, T], the tokens that the denominators count, rejected ones included.
        weights: [B, T], detached; None leaves out what was rejected and weighs the rest 1.

    A rejected token has weight 0: it leaves the sum and stays in the denominators. That is the
    masked importance weight as it is written, sum of w l over *all* tokens: to divide by what is
    left would let a step of which nine tenths are rejected move the policy as far as a whole one,
    by the remaining tenth. Losses (1, 4) with weights (0.5, 0) as a token-mean: 0.25.
    """

    def __init__(self, reduce: Reduce, mask: Tensor, weights: Tensor | None = None) -> None:
        self._reduce = reduce
        self._mask = mask
        self._weights = None if weights is None else weights.detach()
        self.was_used = False
        """Whether a loss has called it: one that reduces by itself would not be corrected."""

    def __call__(self, values: Tensor, mask: Tensor) -> Tensor:
        """The reduced losses [B, T] of the tokens that ``mask`` still holds."""
        self.was_used = True
        values = masked(values, mask)
        if self._weights is not None:
            values = values * masked(self._weights, mask)
        return self._reduce(values, self._mask)


def ppo_clip_loss(
    inputs: PolicyLossInputs,
    *,
    reduce: Reduce,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    clip_c: float | None = 3.0,
) -> LossOutput:
    """PPO's clipped surrogate (arXiv 1707.06347) with the dual clip (1912.09729).

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
    if not 0 <= clip_low < 1 or clip_high < 0:
        raise ValueError(f"clip_low {clip_low} must be in [0, 1) and clip_high {clip_high} >= 0")
    mask = inputs.mask.bool()
    advantages = masked(inputs.advantages, mask)
    log_ratio = _log_ratio(inputs.logprobs, inputs.old_logprobs, mask)
    ratio = log_ratio.exp()

    unclipped = -advantages * ratio
    losses = torch.maximum(unclipped, -advantages * ratio.clamp(1 - clip_low, 1 + clip_high))
    is_dual_clipped = torch.zeros_like(mask)
    if clip_c is not None:
        bound = -advantages * clip_c
        is_dual_clipped = (advantages < 0) & (losses > bound)
        losses = torch.where(advantages < 0, torch.minimum(losses, bound), losses)
    loss = reduce(losses, mask)

    with torch.no_grad():
        is_high = mask & (advantages > 0) & (ratio > 1 + clip_high)
        is_low = mask & (advantages < 0) & (ratio < 1 - clip_low)
        # One transfer from the device for all the numbers.
        total, kl, high, low, dual, count = _numbers(
            loss, -log_ratio.sum(), is_high.sum(), is_low.sum(), is_dual_clipped.sum(), mask.sum()
        )
    return LossOutput(
        loss=loss,
        metrics={
            "actor/pg_loss": Metric.sum(total),
            "actor/ppo_kl": Metric.mean(kl, count),
            "actor/pg_clipfrac": Metric.mean(high + low, count),
            "actor/clip_ratio/high_mean": Metric.mean(high, count),
            "actor/clip_ratio/low_mean": Metric.mean(low, count),
            "actor/pg_clipfrac_lower": Metric.mean(dual, count),
        },
    )


def kl_loss(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    *,
    reduce: Reduce,
    kind: KlKind | str = KlKind.K3,
    old_logprobs: Tensor | None = None,
) -> LossOutput:
    """The KL divergence to the reference as a loss term, all tensors [B, T].

    With ``old_logprobs`` each token's k is multiplied by the ratio to the policy that sampled,
    through which gradient flows: then the value is unbiased for samples of an older policy, and
    the gradient is that of KL(policy || reference), which plain k1 and k3 as a loss do not have
    (arXiv 2512.21852).

    Metrics: ``actor/kl_loss`` (the value before its coefficient), ``actor/kl`` (mean over valid
    tokens; masked rows are left out of it) and ``actor/kl_clampfrac`` (the share of tokens beyond
    the clamp of k3; its ``value`` is their number).
    """
    mask = mask.bool()
    logprobs, ref_logprobs = masked(logprobs, mask), masked(ref_logprobs, mask)
    values = kl_penalty(logprobs, ref_logprobs, kind)
    if old_logprobs is not None:
        values = values * _log_ratio(logprobs, old_logprobs, mask).exp()
    loss = reduce(values, mask)
    with torch.no_grad():
        clamped = is_clamped(logprobs, ref_logprobs).sum()
        total, kl, num_clamped, count = _numbers(loss, values.sum(), clamped, mask.sum())
    return LossOutput(
        loss=loss,
        metrics={
            "actor/kl_loss": Metric.sum(total),
            "actor/kl": Metric.mean(kl, count),
            "actor/kl_clampfrac": Metric.mean(num_clamped, count),
        },
    )


def entropy_loss(entropy: Tensor, mask: Tensor, *, reduce: Reduce) -> LossOutput:
    """Minus the entropy of the policy: added with a positive coefficient, it keeps exploring.

    ``entropy`` [B, T] in nats. Metric: ``actor/entropy``, the mean over valid tokens.
    """
    mask = mask.bool()
    entropy = masked(entropy, mask)
    with torch.no_grad():
        total, count = _numbers(entropy.sum(), mask.sum())
    return LossOutput(
        loss=-reduce(entropy, mask), metrics={"actor/entropy": Metric.mean(total, count)}
    )


def _log_ratio(logprobs: Tensor, old_logprobs: Tensor | None, mask: Tensor) -> Tensor:
    """Logprobs - old_logprobs [B, T], clamped; masked before, so that no NaN has a derivative."""
    current = masked(logprobs, mask)
    old = current if old_logprobs is None else masked(old_logprobs, mask)
    return (current - old.detach()).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)


def _numbers(*scalars: Tensor) -> list[float]:
    numbers: list[float] = torch.stack([scalar.detach().double() for scalar in scalars]).tolist()
    return numbers
