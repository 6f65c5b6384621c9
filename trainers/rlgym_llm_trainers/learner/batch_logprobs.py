"""Log-probs of a batch under a model: under a plain head only trained positions get logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlgym_llm_trainers.algorithms.logprobs import hidden_to_logprobs
from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.states import on_trained_tokens, padded_inputs, states_before

__all__ = ["batch_logprobs", "is_plain_head"]


def batch_logprobs(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float,
    with_entropy: bool = False,
    has_plain_head: bool = True,
    share_prompts: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs [B, T] of the batch's trained tokens, 0 elsewhere, and their entropies on request.

    ``out[:, t] = log p(token[t] | tokens before t)`` at the sampling temperature, in float32.
    The model runs without padding, and once over a prompt that several sequences share, where
    `enable_packing` found that it can; the head runs on the trained positions alone, in chunks.
    Entropies cost passes over the logits: ask for them only where they are used. Where the model
    has no plain head (`is_plain_head`) it runs padded and all its logits are computed. Where the
    batch has kept sets, log-probs and entropies are over those alone.
    """
    head: Any = model.get_output_embeddings() if has_plain_head else None  # type: ignore[operator]
    if head is None:
        states = model(**padded_inputs(batch)).logits[batch.loss_mask[:, 1:]]
    else:
        states = states_before(model, batch, share_prompts=share_prompts)
    found, entropy = hidden_to_logprobs(
        states,
        None if head is None else head.weight,
        batch.input_ids[batch.loss_mask],
        temperature,
        with_entropy=with_entropy,
        kept=batch.kept_rows,
    )
    spread = None if entropy is None else on_trained_tokens(entropy, batch)
    return on_trained_tokens(found, batch), spread


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
