"""Log-probs of given tokens and the entropy, from logits or straight from hidden states.

The temperature divides the *logits*, as it did when the tokens were sampled; a log-prob divided by
it is not normalised. Arithmetic is in float32, or float64 for float64 inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlgym_llm_trainers.algorithms.head import chunked_head, scale_logits
from rlgym_llm_trainers.algorithms.kept_sets import KeptRows

__all__ = ["hidden_to_logprobs", "token_logprobs"]


def token_logprobs(
    logits: Tensor, token_ids: Tensor, temperature: float = 1.0, *, mask: Tensor | None = None
) -> Tensor:
    """Log-probs [B, T] of whole sequences: ``out[:, t] = log p(token[t] | tokens before t)``.

    Position t reads the logits of position t - 1, so ``out[:, 0]`` is 0: nothing predicts it.

    Args:
        logits: [B, T, V], as a causal model gives them for ``token_ids``.
        token_ids: [B, T].
        temperature: above 0.
        mask: bool [B, T]; where given, other positions are neither computed nor differentiated
            (they hold 0), so a NaN there does no harm.

    >>> logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    >>> token_logprobs(logits, torch.tensor([[1, 0]]), 0.6)
    tensor([[ 0.0000, -0.2026]])
    """
    if mask is None:
        mask = torch.ones_like(token_ids, dtype=torch.bool)
    wanted = mask[:, 1:].bool()
    found = _row_logprobs(
        scale_logits(logits[:, :-1][wanted], temperature), token_ids[:, 1:][wanted]
    )
    out = torch.zeros(token_ids.shape, dtype=found.dtype, device=found.device)
    out[:, 1:][wanted] = found
    return out


def hidden_to_logprobs(
    hidden: Tensor,
    weight: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    *,
    chunk_size: int = 1024,
    with_entropy: bool = False,
    kept: KeptRows | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs [N] of ``targets`` (and entropies [N]) from the states before the head.

    Only ``chunk_size`` rows of logits exist at a time, in the backward pass too, where those of
    all chunks but the last are computed again; 16k tokens of a 152k vocabulary would take 10 GB at
    once.

    Args:
        hidden: [N, D], the state that predicts each target: position t - 1 for token t.
        weight: [V, D] of the head; None where ``hidden`` is [N, V], the logits themselves.
        targets: [N] token ids.
        temperature: above 0.
        chunk_size: rows at a time, the memory bound; it changes no result.
        with_entropy: whether to compute entropies; else None stands in their place.
        kept: the kept sets of the N rows, which log-probs and entropies are then over; their mask
            too exists a chunk at a time only.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    return chunked_head(
        hidden,
        weight,
        targets,
        temperature,
        chunk_size=chunk_size,
        with_entropy=with_entropy,
        kept=kept,
    )


def _row_logprobs(scaled: Tensor, targets: Tensor) -> Tensor:
    """[N, V], [N] -> [N]; logsumexp and a gather keep no second [N, V] tensor."""
    return scaled.gather(-1, targets[..., None]).squeeze(-1) - scaled.logsumexp(-1)
