"""Attention over a packed layout, as transformers' models call it under the name ``ATTENTION``.

The layout travels as a keyword through the model's forward pass, from layer to layer. (A context
variable would be unset where activation checkpointing runs a layer again: in the backward pass,
on a GPU in a thread of autograd's own.) Without a layout, to generate or to score a padded batch,
the call is SDPA's as it always was.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlgym_llm_trainers.learner.packing import Layout, Run

__all__ = ["ATTENTION", "packed_attention", "register_attention"]

ATTENTION = "rlgym_packed"
"""The name under which transformers finds it."""

_REFUSED = ("softcap", "s_aux", "position_bias")
"""Additions to the scores that SDPA has no place for."""


def register_attention() -> None:
    """Makes ``ATTENTION`` known to transformers; once or more, to the same effect."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, packed_attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout | None = None,
    windows: list[int | None] | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Each token sees itself, what precedes it in its segment, and its segment's prompt.

    Args:
        module: the attention layer.
        query: [1, H, N, D] over the positions of the layout.
        key: [1, K, N, D]; K divides H.
        value: [1, K, N, D].
        attention_mask: for calls without a layout.
        layout: which positions belong together.
        windows: where given, takes down ``sliding_window`` of each call.
        scaling: of the scores; None is ``D ** -0.5``.
        dropout: must be 0 over a layout.
        sliding_window: tokens that a token sees at most, itself included.
        kwargs: other settings of the model; NotImplementedError for those not honoured.

    Returns:
        [1, N, H, D], and None for the weights, which are not kept.
    """
    if layout is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        sdpa: Any = sdpa_attention_forward
        found: tuple[Tensor, None] = sdpa(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return found
    refused = [name for name in _REFUSED if kwargs.get(name) is not None]
    is_causal = kwargs.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if refused or dropout or not is_causal:
        what = refused or (["dropout"] if dropout else ["attention that is not causal"])
        raise NotImplementedError(f"packed attention does not know {', '.join(what)}")
    if windows is not None:
        windows.append(sliding_window)
    if _has_kernel(query):
        return _variable_length(query, key, value, layout, scaling, sliding_window), None
    sizes = [run.num_tokens for run in layout.runs]
    # One split and one join: the gradient of a slice would fill all N positions with zeros.
    queries, keys, values = (torch.split(x, sizes, dim=2) for x in (query, key, value))
    outputs = []
    for place, run in enumerate(layout.runs):
        mask = _mask(layout, run, query, sliding_window)
        outputs.append(
            F.scaled_dot_product_attention(
                _segments(queries[place], run),
                _with_prompts(keys, place, layout),
                _with_prompts(values, place, layout),
                attn_mask=mask,
                is_causal=mask is None and run.prompt_run is None and run.length > 1,
                scale=scaling,
                enable_gqa=key.shape[1] != query.shape[1],
            )
            .transpose(1, 2)
            .flatten(0, 1)
        )
    return torch.cat(outputs)[None], None


def _has_kernel(query: Tensor) -> bool:
    """Whether CUDA's variable-length kernel takes these heads; else SDPA serves, run by run."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    is_new = torch.cuda.get_device_capability(query.device) >= (8, 0)
    return is_new and query.shape[-1] % 8 == 0 and query.shape[-1] <= 256 and _knows_windows()


@functools.cache
def _knows_windows() -> bool:
    """Whether this torch has the kernel, with windows and grouped heads."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return {"window_size", "enable_gqa"} <= inspect.signature(varlen_attn).parameters.keys()


def _segments(states: Tensor, run: Run) -> Tensor:
    """[1, H, count * length, D] of a run as [count, H, length, D]."""
    heads, _, width = states.shape[1:]
    by_token = states[0].transpose(0, 1)
    return by_token.reshape(run.count, run.length, heads, width).transpose(1, 2)


def _with_prompts(states: tuple[Tensor, ...], place: int, layout: Layout) -> Tensor:
    """The keys or values that the segments of a run see: their prompts', then their own."""
    run = layout.runs[place]
    own = _segments(states[place], run)
    if run.prompt_run is None:
        return own
    prompts = _segments(states[run.prompt_run], layout.runs[run.prompt_run])
    first = run.prompt_rows[0]
    if all(row == first for row in run.prompt_rows):
        prompts = prompts[first].expand(run.count, -1, -1, -1)
    else:
        rows = layout.notes.get(place)
        if rows is None:
            rows = layout.notes[place] = torch.tensor(run.prompt_rows, device=own.device)
        prompts = prompts.index_select(0, rows)
    return torch.cat((prompts, own), dim=2)


def _mask(layout: Layout, run: Run, query: Tensor, window: int | None) -> Tensor | None:
    """0 on the keys [length, prompt + length] that each token sees and -inf on the others.

    None where no mask is needed: a segment alone is plainly causal, a single token sees all.
    """
    if window is not None and window >= run.key_length:
        window = None
    if window is None and (run.prompt_run is None or run.length == 1):
        return None
    name = (run.prompt_length, run.length, window, query.dtype)
    mask = layout.notes.get(name)
    if mask is None:
        places = torch.arange(run.key_length, device=query.device)
        ago = places[run.prompt_length :, None] - places
        is_seen = ago >= 0
        if window is not None:
            is_seen &= ago < window
        mask = torch.zeros(is_seen.shape, dtype=query.dtype, device=query.device)
        layout.notes[name] = mask.masked_fill_(~is_seen, -torch.inf)
    return mask


def _variable_length(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Layout,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """The same by the variable-length kernel of CUDA, all segments in one call: [1, N, H, D]."""
    from torch.nn.attention.varlen import varlen_attn

    if "key_places" not in layout.notes:
        layout.notes.update(_variable_lengths(layout, query.device))
    places = layout.notes["key_places"]
    out: Any = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1).index_select(0, places),
        value[0].transpose(0, 1).index_select(0, places),
        layout.notes["query_ends"],
        layout.notes["key_ends"],
        max(run.length for run in layout.runs),
        max(run.key_length for run in layout.runs),
        scale=scaling,
        # Causal from the end: the last token of a segment sees all of its keys.
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=key.shape[1] != query.shape[1],
    )
    found: Tensor = out
    return found[None]


def _variable_lengths(layout: Layout, device: torch.device) -> dict[object, Tensor]:
    """Where each segment ends among the queries and the keys, and the position of each key."""
    starts = [0]
    for run in layout.runs:
        starts.append(starts[-1] + run.num_tokens)
    query_ends, key_ends, places = [0], [0], list[int]()
    for start, run in zip(starts, layout.runs, strict=False):
        for row in range(run.count):
            if run.prompt_run is not None:
                prompt = starts[run.prompt_run] + run.prompt_rows[row] * run.prompt_length
                places += range(prompt, prompt + run.prompt_length)
            own = start + row * run.length
            places += range(own, own + run.length)
            query_ends.append(query_ends[-1] + run.length)
            key_ends.append(key_ends[-1] + run.key_length)
    return {
        "query_ends": torch.tensor(query_ends, dtype=torch.int32, device=device),
        "key_ends": torch.tensor(key_ends, dtype=torch.int32, device=device),
        "key_places": torch.tensor(places, device=device),
    }
