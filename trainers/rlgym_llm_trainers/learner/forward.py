"""The model's forward pass over a packed layout, for the models that a probe shows to be equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlgym_llm_trainers.learner.attention import ATTENTION, register_attention
from rlgym_llm_trainers.learner.packing import Layout, layout_of

__all__ = ["can_pack", "enable_packing", "forward_hidden"]

_PROBE = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 0], [9, 3, 2, 0, 0, 0]]
"""Two that share a prompt of three tokens and one that does not."""
_REAL = [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]
_READ = [[0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]


def enable_packing(model: nn.Module) -> bool:
    """Whether the model can run packed, seen on a probe; if so, its attention is switched to it.

    What runs padded, generation too, still runs as before. Models stay padded whose attention is
    not transformers' SDPA or takes no keywords, and those whose layers mix tokens in other ways
    (recurrent, convolutional or chunked ones): there `batch_logprobs` computes the padding.
    """
    config: Any = getattr(model, "config", None)
    if can_pack(model):
        return True
    if getattr(config, "_attn_implementation", None) != "sdpa":
        return False
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    chunk_size = getattr(text, "attention_chunk_size", None)
    if kinds - {"full_attention", "sliding_attention"} or chunk_size is not None:
        return False
    register_attention()
    was_training = model.training
    model.eval()
    try:
        model.set_attn_implementation(ATTENTION)  # type: ignore[operator]
        is_equal = _is_equal(model)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # what models say of surprises
        is_equal = False  # packed is a way to be fast, and the padded way is always there
    model.train(was_training)
    if not is_equal:
        model.set_attn_implementation("sdpa")  # type: ignore[operator]
    return is_equal


def can_pack(model: nn.Module) -> bool:
    """Whether `enable_packing` has switched this model, or the one it is a copy of."""
    config: Any = getattr(model, "config", None)
    return getattr(config, "_attn_implementation", None) == ATTENTION


def forward_hidden(
    model: nn.Module, layout: Layout, *, windows: list[int | None] | None = None
) -> Tensor:
    """The last hidden states [N, D] of the layout's positions; ``windows`` as in the attention."""
    extra = {} if windows is None else {"windows": windows}
    output = model.base_model(  # type: ignore[operator]
        input_ids=layout.input_ids[None],
        position_ids=layout.position_ids[None],
        # A mask in four dimensions is passed on as it is: none of N x N is built.
        attention_mask=layout.input_ids.new_zeros((1, 1, 1, 1), dtype=torch.bool),
        use_cache=False,
        layout=layout,
        **extra,
    )
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


@torch.no_grad()
def _is_equal(model: nn.Module) -> bool:
    """Whether packed and padded states of the probe are equal up to the arithmetic's precision."""
    weight = next(model.parameters())
    config: Any = model.config
    ids = torch.tensor(_PROBE, device=weight.device) % config.get_text_config().vocab_size
    is_read = torch.tensor(_READ, dtype=torch.bool, device=weight.device)
    layout = layout_of(ids, is_read)
    windows: list[int | None] = []
    packed = forward_hidden(model, layout, windows=windows)[layout.places]
    if sum(window is not None for window in windows) < _num_sliding(config):
        return False  # windows that stand in the mask alone would be lost
    padded = model.base_model(  # type: ignore[operator]
        input_ids=ids, attention_mask=torch.tensor(_REAL, device=ids.device), use_cache=False
    ).last_hidden_state[is_read]
    error = torch.linalg.vector_norm((packed - padded).double())
    # Some parts, such as routers, are in float32 whatever the weights are.
    tolerance = max(torch.finfo(d).eps for d in (weight.dtype, torch.float32)) ** 0.5
    return bool(error <= tolerance * torch.linalg.vector_norm(padded.double()))


def _num_sliding(config: Any) -> int:
    """Layers that the configuration gives a sliding window."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds is not None:
        return sum(kind == "sliding_attention" for kind in kinds)
    is_on = getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)
    return text.num_hidden_layers if is_on else 0
