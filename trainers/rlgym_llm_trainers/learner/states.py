"""Hidden states of a batch: of each trained token the one that it was sampled from."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.forward import can_pack, forward_hidden
from rlgym_llm_trainers.learner.packing import layout_of

__all__ = ["on_trained_tokens", "padded_inputs", "states_before"]


def states_before(model: nn.Module, batch: Batch, *, share_prompts: bool = True) -> Tensor:
    """The last hidden states [N, D] at t - 1 for the N trained tokens t, row by row.

    What predicts a token, and what its value is of. The model runs without padding, and once over
    a prompt that several sequences share, where `enable_packing` found that it can.
    """
    if can_pack(model):
        is_read = F.pad(batch.loss_mask[:, 1:], (0, 1))
        layout = layout_of(batch.input_ids, is_read, share_prompts=share_prompts)
        return forward_hidden(model, layout).index_select(0, layout.places)
    output: Any = model.base_model(**padded_inputs(batch))  # type: ignore[operator]
    states: Tensor = output.last_hidden_state[batch.loss_mask[:, 1:]]
    return states


def padded_inputs(batch: Batch) -> dict[str, Any]:
    """What a transformers model is called with on the padded batch, to read states at t - 1.

    Its last column is left out, which is before no token; a model may have no position for it.
    """
    return {
        "input_ids": batch.input_ids[:, :-1],
        "attention_mask": batch.attention_mask[:, :-1],
        "position_ids": batch.position_ids[:, :-1],
        "use_cache": False,
    }


def on_trained_tokens(values: Tensor, batch: Batch) -> Tensor:
    """Values [N] of the trained tokens at their places in [B, T], 0 elsewhere."""
    is_trained = batch.loss_mask
    return values.new_zeros(is_trained.shape).masked_scatter(is_trained, values)
