"""Per-token values to one loss, by denominators of the whole optimizer step.

Every mode divides by counts that the caller took over all micro-batches and ranks of the step, so
that the sum over the parts equals the whole: neither the loss nor its gradient depends on how the
step was split, and nothing may divide by the number of accumulation steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import torch
from torch import Tensor

__all__ = [
    "LossAggMode",
    "Reduce",
    "aggregate",
    "count_tokens",
    "masked",
    "sequence_means",
    "tokens_by_prompt",
]

Reduce = Callable[[Tensor, Tensor], Tensor]
"""(values [B, T], mask [B, T]) -> scalar; `aggregate` with all but its first two bound."""


class LossAggMode(StrEnum):
    """How token losses become one number; verl's spellings."""

    TOKEN_MEAN = "token-mean"
    """Sum over all tokens / number of tokens: every token weighs the same."""
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    """Mean over sequences of the token sums."""
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"
    """The same, divided by a constant ``max_length`` (Dr.GRPO)."""
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    """Mean over sequences of the token means: every sequence weighs the same."""
    PROMPT_MEAN = "prompt-mean"
    """Mean over prompts of the mean over all tokens of their responses: every prompt weighs the
    same, and within one every token."""


def aggregate(
    values: Tensor,
    mask: Tensor,
    mode: LossAggMode | str = LossAggMode.TOKEN_MEAN,
    *,
    num_tokens: int,
    num_sequences: int,
    max_length: int | None = None,
    num_prompts: int | None = None,
    prompt_tokens: Tensor | None = None,
) -> Tensor:
    """This part's share of the step's loss, a scalar to call ``backward`` on.

    Args:
        values: token losses [B, T]; what stands under mask 0 (NaN and inf too) counts for nothing.
        mask: bool [B, T], 1 on the tokens that are trained.
        mode: one of `LossAggMode`.
        num_tokens: unmasked tokens of the whole optimizer step, all ranks; see `count_tokens`.
        num_sequences: sequences of the whole step with at least one unmasked token.
        max_length: the constant L_max that ``seq-mean-token-sum-norm`` divides by.
        num_prompts: prompts of the whole step with at least one unmasked token, which
            ``prompt-mean`` divides by; see `tokens_by_prompt`.
        prompt_tokens: [B], for each row the unmasked tokens of *all* responses to its prompt in the
            whole step, wherever these are, for ``prompt-mean``; see `tokens_by_prompt`.

    Two sequences of token losses [1, 1] and [4]: token-mean 2, seq-mean-token-sum 3,
    seq-mean-token-mean 2.5; as responses to two prompts prompt-mean is 2.5, to one 2. Raises
    ValueError for an unknown mode, and for one whose denominators are not given.

    >>> values = torch.tensor([[1.0, 1.0], [4.0, float("nan")]])
    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> aggregate(values, mask, "seq-mean-token-mean", num_tokens=3, num_sequences=2).item()
    2.5
    """
    mode = LossAggMode(mode)
    mask = mask.bool()
    sequence_sums = masked(values, mask).sum(-1)  # [B]
    # A step without any trained token has loss 0 that still hangs on the graph.
    if mode is LossAggMode.TOKEN_MEAN:
        return sequence_sums.sum() / max(num_tokens, 1)
    if mode is LossAggMode.PROMPT_MEAN:
        if num_prompts is None or prompt_tokens is None:
            raise ValueError(f"{mode} needs num_prompts and prompt_tokens")
        per_prompt = sequence_sums / prompt_tokens.to(sequence_sums.device).clamp(min=1)
        return per_prompt.sum() / max(num_prompts, 1)
    if mode is LossAggMode.SEQ_MEAN_TOKEN_MEAN:
        sequence_sums = sequence_sums / mask.sum(-1).clamp(min=1)
    elif mode is LossAggMode.SEQ_MEAN_TOKEN_SUM_NORM:
        if max_length is None or max_length < 1:
            raise ValueError(f"{mode} needs max_length, the constant it divides by")
        sequence_sums = sequence_sums / max_length
    return sequence_sums.sum() / max(num_sequences, 1)


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """``values`` where ``mask``, else exactly 0 in value and gradient, NaN and inf included.

    Multiplying by the mask would not do: ``inf * 0`` is NaN. Whatever function still follows must
    be applied to the result, since a NaN derivative times a zero gradient is NaN again.
    """
    return torch.where(mask.bool(), values, 0.0)


def sequence_means(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of each row over its mask, [B, 1]; 0 where the mask is empty. Summed in float64.

    >>> values = torch.tensor([[1.0, 9.0, 2.0]])
    >>> sequence_means(values, torch.tensor([[True, False, True]])).tolist()
    [[1.5]]
    """
    counts = mask.sum(-1, keepdim=True).clamp(min=1)
    sums = masked(values, mask).sum(-1, keepdim=True, dtype=torch.float64)
    return (sums / counts).to(values.dtype)


def count_tokens(mask: Tensor) -> tuple[int, int]:
    """(trained tokens, sequences with at least one) of a mask [B, T]: the two denominators.

    What never trains (a masked truncation, an unscored rollout) is not under the mask; a token that
    a correction rejects still is, with weight 0 (`losses.inputs.WeightedReduce`).
    """
    per_sequence = mask.bool().sum(-1)
    return int(per_sequence.sum()), int((per_sequence > 0).sum())


def tokens_by_prompt(num_tokens: Sequence[int], group_ids: Sequence[str]) -> dict[str, int]:
    """Group id -> trained tokens of all its responses: the denominators of ``prompt-mean``.

    Of all sequences of the optimizer step, on whatever rank; siblings share a group id.

    >>> tokens_by_prompt([3, 1, 5, 0], ["a", "b", "a", "c"])
    {'a': 8, 'b': 1, 'c': 0}
    """
    found: dict[str, int] = {}
    for count, group in zip(num_tokens, group_ids, strict=True):
        found[group] = found.get(group, 0) + count
    return found
