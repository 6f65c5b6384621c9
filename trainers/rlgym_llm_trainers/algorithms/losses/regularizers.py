"""What is added to a policy loss: the KL to the reference policy, and an entropy bonus."""

from __future__ import annotations

from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.kl import KlKind, is_clamped, kl_penalty
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, numbers
from rlgym_llm_trainers.algorithms.metrics import Metric

__all__ = ["entropy_loss", "kl_loss"]


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
    (arXiv 2512.21852, 2512.02556). The straight-through kinds have that gradient themselves, so
    their ratio only weighs.

    Metrics: ``actor/kl_loss`` (the value before its coefficient), ``actor/kl`` (mean over valid
    tokens; masked rows are left out of it) and ``actor/kl_clampfrac`` (the share of tokens beyond
    the clamp of k3; its ``value`` is their number).
    """
    kind, mask = KlKind(kind), mask.bool()
    logprobs, ref_logprobs = masked(logprobs, mask), masked(ref_logprobs, mask)
    values = kl_penalty(logprobs, ref_logprobs, kind)
    if old_logprobs is not None:
        ratio = bounded(token_log_ratio(logprobs, old_logprobs, mask)).exp()
        values = values * (ratio.detach() if kind.is_straight_through else ratio)
    loss = reduce(values, mask)
    total, kl, num_clamped, count = numbers(
        loss, masked(values, mask).sum(), is_clamped(logprobs, ref_logprobs).sum(), mask.sum()
    )
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
    total, count = numbers(entropy.sum(), mask.sum())
    return LossOutput(
        loss=-reduce(entropy, mask), metrics={"actor/entropy": Metric.mean(total, count)}
    )
