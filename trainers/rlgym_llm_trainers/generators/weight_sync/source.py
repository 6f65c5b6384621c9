"""A learner's weights, one by one, under the names that its Hugging Face folder has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["WeightMeta", "policy_weights", "tied_weights", "weight_metas"]


@dataclass(frozen=True, slots=True)
class WeightMeta:
    """What one weight is, without its numbers."""

    name: str
    """As ``save_pretrained`` writes it."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Of the whole tensor, however it is sharded."""


def policy_weights(
    model: nn.Module, *, device: torch.device | str | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Every weight once, whole and detached: ``(name, tensor)`` in the order of the modules.

    Names and numbers are those that ``save_pretrained`` writes, persistent buffers included; of
    tied weights only the first stands here (the embedding, not the head: `tied_weights`). A plain
    tensor is no copy. Shards of FSDP2 are gathered a weight at a time, so the whole model never
    stands in one place; models whose folder has other tensors than their modules (mixtures of
    experts) are gathered and converted a layer at a time.

    With FSDP2 every rank must go through all of it, for gathering is collective; ranks that need
    nothing do so with ``for _ in policy_weights(model): pass``.

    Args:
        model: a transformers model, or any module.
        device: where the tensors are to be; None leaves them where they are.
    """
    if not _needs_conversion(model):
        for name, tensor in _distinct(model):
            yield name, _whole(tensor, device)
        return
    for layer in _layers(_distinct(model)):
        yield from _convert(model, {name: _whole(tensor, device) for name, tensor in layer}).items()


def weight_metas(model: nn.Module) -> list[WeightMeta]:
    """What `policy_weights` will yield, in its order; nothing is gathered or computed.

    A tied Llama of one layer: ``model.embed_tokens.weight``, nine of the layer,
    ``model.norm.weight``; no ``lm_head.weight``.
    """
    metas: list[WeightMeta] = []
    needs_conversion = _needs_conversion(model)
    for layer in _layers(_distinct(model)):
        hollow = {name: _hollow(tensor) for name, tensor in layer}
        converted = _convert(model, hollow) if needs_conversion else hollow
        metas += [WeightMeta(n, t.dtype, tuple(t.shape)) for n, t in converted.items()]
    return metas


def tied_weights(model: nn.Module) -> dict[str, str]:
    """Name -> the name under which the same tensor is sent.

    ``{"lm_head.weight": "model.embed_tokens.weight"}`` for a tied Llama, ``{}`` for an untied one,
    whatever its config says: only what shares its numbers is tied.
    """
    state = _state(model)
    module: Any = model
    # Where two names have one tensor, transformers says which is the copy: the head.
    copies = set(getattr(module, "all_tied_weights_keys", None) or ())
    first: dict[object, str] = {}
    tied: dict[str, str] = {}
    for name in sorted(state, key=lambda name: name in copies):
        sent = first.setdefault(_identity(state[name]), name)
        if sent != name:
            tied[name] = sent
    return tied


def _state(model: nn.Module) -> dict[str, Tensor]:
    """What a folder holds, tied names still twice and shards still shards."""
    module: Any = model
    unsaved = set(getattr(module, "_keys_to_ignore_on_save", None) or ())
    state = model.state_dict(keep_vars=True)  # the very parameters, so that tied ones are seen
    return {n: t for n, t in state.items() if isinstance(t, Tensor) and n not in unsaved}


def _distinct(model: nn.Module) -> list[tuple[str, Tensor]]:
    tied = tied_weights(model)
    return [(name, tensor) for name, tensor in _state(model).items() if name not in tied]


def _identity(tensor: Tensor) -> object:
    # By object for shards: every rank must come to the same answer, and a rank may hold none of it.
    if _is_sharded(tensor) or not tensor.numel() or tensor.is_meta:
        return id(tensor)
    place = tensor.untyped_storage().data_ptr(), tensor.storage_offset()
    return tensor.device, *place, tensor.shape, tensor.stride()


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # a DTensor, without importing what distributes


def _whole(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    found: Any = tensor.detach()
    whole: Tensor = found.full_tensor() if _is_sharded(found) else found
    return whole if device is None else whole.to(device)


def _hollow(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _needs_conversion(model: nn.Module) -> bool:
    """Whether the folder's tensors are not the modules', as transformers says."""
    from transformers import PreTrainedModel
    from transformers.conversion_mapping import get_model_conversion_mapping

    if not isinstance(model, PreTrainedModel):
        return False
    conversions: Any = getattr(model, "_weight_conversions", None)
    if conversions is None:  # not loaded from a folder
        conversions = get_model_conversion_mapping(model, add_legacy=False)
    return bool(conversions)


def _convert(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    from transformers.core_model_loading import revert_weight_conversion

    module: Any = model
    converted: dict[str, Tensor] = revert_weight_conversion(module, weights)
    return converted


def _layers(named: list[tuple[str, Tensor]]) -> Iterator[list[tuple[str, Tensor]]]:
    """Runs of one layer: what shares all up to the first number, ``model.layers.3``."""

    def layer_of(item: tuple[str, Tensor]) -> str:
        found = re.match(r".*?\.\d+(?=\.)", item[0])
        return found[0] if found else ""

    for _, run in itertools.groupby(named, key=layer_of):
        yield list(run)
