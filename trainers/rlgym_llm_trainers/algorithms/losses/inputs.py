"""What a policy loss is given: the streams, and a ``reduce`` that may weigh its token losses."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked

__all__ = ["PolicyLossInputs", "WeightedReduce"]


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


class WeightedReduce:
    """A ``reduce`` that multiplies the token losses by their weights, and divides as before.

    Samples of another policy come with weights, and those are the business of this class alone: a
    policy loss returns token losses as it would on-policy and calls the ``reduce`` it is given. So
    every registered loss is corrected, also one whose author never heard of weights, and none can
    weigh twice or let gradient flow through a weight, as it could were they among its inputs.

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

    def __call__(self, values: Tensor, mask: Tensor) -> Tensor:
        """The reduced losses [B, T] of the tokens that ``mask`` still holds."""
        values = masked(values, mask)
        if self._weights is not None:
            values = values * masked(self._weights, mask)
        return self._reduce(values, self._mask)
