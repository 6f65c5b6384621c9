"""Per-token estimators of KL(policy || reference) from the tokens that the policy sampled.

With d = ref_logprob - logprob (http://joschu.net/blog/kl-approx.html); written the other way
round, k3 is positive still and looks plausible, yet estimates something else.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

__all__ = ["LOG_RATIO_CLAMP", "KlKind", "is_clamped", "kl_penalty"]

LOG_RATIO_CLAMP = 20.0
"""Largest |log-ratio| that is exponentiated, in nats; exp(88.8) is infinite in float32."""


class KlKind(StrEnum):
    """The estimators, under verl's names and their short ones."""

    K1 = "k1"
    """-d: unbiased, of either sign."""
    KL = "kl"
    """The same as k1."""
    ABS = "abs"
    """abs(d)."""
    K2 = "k2"
    """d^2 / 2."""
    MSE = "mse"
    """The same as k2."""
    K3 = "k3"
    """exp(d) - d - 1: unbiased and never negative."""
    LOW_VAR_KL = "low_var_kl"
    """k3 whose value is clamped at 10 too, as verl does it."""
    K3_PLUS = "k3+"
    """Straight-through: the value of k3, the gradient of k2."""
    LOW_VAR_KL_PLUS = "low_var_kl+"
    """The value of low_var_kl, the gradient of k2."""

    @property
    def is_straight_through(self) -> bool:
        """Whether its gradient is that of k2, which as a loss is that of KL(policy || reference).

        Of samples of the policy itself; the gradient of k1 is 0 on average and that of k3 belongs
        to another divergence (arXiv 2512.21852). In a reward all that counts is the value.
        """
        return self.value.endswith("+")


def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor, kind: KlKind | str = KlKind.K3) -> Tensor:
    """Per-token KL estimate in nats, of the shape of ``logprobs``, in float32 or better.

    Gradient flows through ``logprobs`` alone. For k3 the log-ratio is clamped to +-20 before the
    exponential, so value and gradient stay finite. Raises ValueError for an unknown kind.

    >>> logprobs, ref = torch.tensor([-1.2, -0.3]), torch.tensor([-0.7, -0.9])
    >>> [round(v, 4) for v in kl_penalty(logprobs, ref, "k3").tolist()]
    [0.1487, 0.1488]
    """
    kind = KlKind(kind)
    d = _difference(logprobs, ref_logprobs)
    match kind:
        case KlKind.K1 | KlKind.KL:
            return -d
        case KlKind.ABS:
            return d.abs()
        case KlKind.K2 | KlKind.MSE:
            return 0.5 * d.square()
    # expm1, since exp(d) - 1 loses the digits of a small d; min=0 against its last rounding.
    near = d.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    k3 = (torch.expm1(near) - near).clamp(min=0.0)
    if kind in (KlKind.LOW_VAR_KL, KlKind.LOW_VAR_KL_PLUS):
        k3 = k3.clamp(max=10.0)
    if not kind.is_straight_through:
        return k3
    k2 = 0.5 * d.square()
    return k3.detach() + (k2 - k2.detach())  # the bracket is exactly 0


def is_clamped(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """True on the tokens whose log-ratio lies beyond the clamp of k3, of the same shape."""
    return _difference(logprobs.detach(), ref_logprobs).abs() > LOG_RATIO_CLAMP


def _difference(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    # Cast first: a difference of two bfloat16 log-probs has no digits left.
    return _at_least_float32(ref_logprobs.detach()) - _at_least_float32(logprobs)


def _at_least_float32(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
