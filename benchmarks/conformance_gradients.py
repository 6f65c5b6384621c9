"""Losses as functions of the log-probs alone: value and gradient, ours and a peer's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance_cases import PROMPT, Rollouts, whole
from rlgym_llm_trainers.algorithms.aggregate import aggregate, count_tokens
from rlgym_llm_trainers.algorithms.losses import PolicyLossInputs, WeightedReduce
from torch import Tensor
from torch.autograd import grad

__all__ = ["LENGTH", "MODES", "our_policy_loss", "our_reduce", "value_and_gradient", "whole_mask"]

LENGTH = 14
"""What ``seq-mean-token-sum-norm`` divides by."""
MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
"""Aggregations that a peer has too."""


def value_and_gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by the one tensor that it is a function of."""
    point = at.detach().clone().requires_grad_()
    value = loss(point)
    (gradient,) = grad(value, point)
    return value.detach(), gradient


def our_reduce(mask: Tensor, mode: str, **denominators: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Our aggregation with the denominators of this mask [N, T], or those that are given."""
    num_tokens, num_sequences = count_tokens(mask)
    bound = {"num_tokens": num_tokens, "num_sequences": num_sequences, **denominators}

    def reduce(values: Tensor, mask: Tensor) -> Tensor:
        return aggregate(values, mask, mode, max_length=LENGTH, **bound)

    return reduce


def our_policy_loss(
    loss: Callable[..., Any],
    drawn: Rollouts,
    advantages: Tensor,
    mode: str,
    *,
    weights: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """(value, gradient [N, T] on responses, metrics) of a policy loss of ours.

    Streams are of whole sequences with NaN off the mask, where the gradient must be exactly 0.
    """
    mask = whole_mask(drawn)
    reduce: Any = our_reduce(mask, mode)
    if weights is not None:
        reduce = WeightedReduce(reduce, mask, whole(weights, drawn.mask))
    metrics: dict[str, float] = {}

    def run(logprobs: Tensor) -> Tensor:
        inputs = PolicyLossInputs(
            logprobs=logprobs,
            old_logprobs=whole(drawn.old_logprobs, drawn.mask),
            advantages=whole(advantages, drawn.mask),
            mask=mask,
        )
        output = loss(inputs, reduce=reduce, **options)
        metrics.update({name: metric.result() for name, metric in output.metrics.items()})
        value: Tensor = output.loss
        return value

    value, gradient = value_and_gradient(run, whole(drawn.logprobs, drawn.mask))
    if bool((gradient[~mask] != 0).any()):
        raise AssertionError("gradient on a token that was not sampled")
    return value, gradient[:, PROMPT:], metrics


def whole_mask(drawn: Rollouts) -> Tensor:
    """The mask of whole sequences, bool."""
    return whole(drawn.mask, drawn.mask).nan_to_num().bool()
