"""Log-probs of a batch under a model: under a plain head only trained positions get logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlgym_llm_trainers.batch import Batch
from rlgym_llm_trainers.logprobs import entropy_from_logits, hidden_to_logprobs, token_logprobs

__all__ = ["batch_logprobs", "is_plain_head"]


def batch_logprobs(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float,
    with_entropy: bool = False,
    has_plain_head: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs [B, T] of the batch's trained tokens, 0 elsewhere, and their entropies on request.

    ``out[:, t] = log p(token[t] | tokens before t)`` at the sampling temperature, in float32.
    The head runs on the trained positions alone, in chunks, and computes its logits again in the
    backward pass, entropies included: ask for those only where they are used. Where the model
    has no plain head (`is_plain_head`) all its logits are computed.
    """
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
        "position_ids": batch.position_ids,
        "use_cache": False,
    }
    if not has_plain_head:
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


def is_plain_head(model: nn.Module) -> bool:
    """Whether the logits are ``hidden @ head.T`` and nothing more, seen on a probe of four tokens.

    Some models cap or scale their logits or have a bias; they take the slow path.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(head, nn.Linear) or head.bias is not None:
        return False
    probe = torch.arange(4, device=head.weight.device)[None] % head.weight.shape[0]
    is_training = model.training
    with torch.no_grad():
        model.eval()
        logits = model(input_ids=probe, use_cache=False).logits
        hidden = model.base_model(input_ids=probe, use_cache=False).last_hidden_state
        model.train(is_training)
    return bool(torch.allclose(logits.float(), (hidden @ head.weight.T).float(), 1e-3, 1e-3))


def _scatter(values: Tensor, is_trained: Tensor) -> Tensor:
    """Values [N] to their places in [B, T]; column 0 is never trained."""
    out = values.new_zeros((is_trained.shape[0], is_trained.shape[1] + 1))
    out[:, 1:][is_trained] = values
    return out
