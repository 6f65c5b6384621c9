"""Log-probs of whole samples under a model, without ever holding logits of what is not trained."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rlgym_llm_trainers.batch import Batch
from rlgym_llm_trainers.logprobs import entropy_from_logits, hidden_to_logprobs, token_logprobs

__all__ = ["score_tokens"]

_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "logits_soft_cap")
"""Config fields of models whose logits are more than ``hidden @ head``; they take the slow path."""


def score_tokens(
    model: nn.Module, batch: Batch, *, temperature: float, with_entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Log-probs [B, T] of the batch's trained tokens, 0 elsewhere, and their entropies on request.

    ``out[:, t] = log p(token[t] | tokens before t)`` at the sampling temperature, in float32.
    The head runs on the trained positions alone, in chunks, and computes its logits again in the
    backward pass, entropies included: ask for those only where they are used.
    """
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
        "position_ids": batch.position_ids,
        "use_cache": False,
    }
    if not _has_plain_head(model):
        logits = model(**inputs).logits
        logprobs = token_logprobs(logits, batch.input_ids, temperature, mask=batch.loss_mask)
        if not with_entropy:
            return logprobs, None
        is_trained = batch.loss_mask[:, 1:]
        entropies = entropy_from_logits(logits[:, :-1][is_trained], temperature)
        return logprobs, _scatter(entropies, is_trained)

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    hidden = model.base_model(**inputs).last_hidden_state  # type: ignore[operator]
    is_trained = batch.loss_mask[:, 1:]
    found, found_entropy = hidden_to_logprobs(
        hidden[:, :-1][is_trained],
        head.weight,
        batch.input_ids[:, 1:][is_trained],
        temperature,
        with_entropy=with_entropy,
    )
    logprobs = _scatter(found, is_trained)
    return logprobs, None if found_entropy is None else _scatter(found_entropy, is_trained)


def _has_plain_head(model: nn.Module) -> bool:
    head = model.get_output_embeddings()  # type: ignore[operator]
    config = model.config
    is_changed = any(getattr(config, name, None) not in (None, 1, 1.0) for name in _LOGIT_CHANGES)
    return isinstance(head, nn.Linear) and head.bias is None and not is_changed


def _scatter(values: Tensor, is_trained: Tensor) -> Tensor:
    """Values [N] to their places in [B, T]; column 0 is never trained."""
    out = values.new_zeros((is_trained.shape[0], is_trained.shape[1] + 1))
    out[:, 1:][is_trained] = values
    return out
