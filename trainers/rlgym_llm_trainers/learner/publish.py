"""The trained weights, whole and merged, into the model that is sampled from and saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["publish"]


@torch.no_grad()
def publish(trained: nn.Module, whole: nn.Module | None) -> None:
    """Copies every weight of ``trained`` into the weight of that name in ``whole``.

    Shards are gathered a weight at a time, so every rank must call it; ``whole`` is None on those
    that need nothing. Adapters are added to what they adapt: W + scale * B @ A. Where both are one
    module there is nothing to do.
    """
    if trained is whole:
        return
    targets = {} if whole is None else dict(whole.named_parameters())
    for name, parameter in trained.named_parameters():
        owner, _, last = name.rpartition(".")
        is_adapted = owner.endswith(".base_layer")
        if ".lora_" in name or not (parameter.requires_grad or is_adapted):
            continue  # an adapter comes below, and what is frozen is in ``whole`` as it is
        value = _whole(parameter)
        if targets:
            name = f"{owner.removesuffix('.base_layer')}.{last}" if is_adapted else name
            targets[name].copy_(value)
    for name, layer in _adapted(trained).items():
        delta = _delta(layer)
        if targets:
            weight = targets[f"{name}.weight"]
            weight.add_(delta.to(weight.device, weight.dtype))


def _adapted(module: nn.Module) -> dict[str, Any]:
    """Layers with an adapter, by name."""
    return {name: part for name, part in module.named_modules() if hasattr(part, "lora_A")}


def _delta(layer: Any) -> Tensor:
    """What the layer's adapter adds to its weight; gathers its shards."""
    (adapter,) = layer.lora_A.keys()
    down, up = _whole(layer.lora_A[adapter].weight), _whole(layer.lora_B[adapter].weight)
    delta: Tensor = layer.scaling[adapter] * (up.float() @ down.float())
    return delta.T if layer.fan_in_fan_out else delta


def _whole(parameter: Tensor) -> Tensor:
    found: Any = parameter.detach()
    whole: Tensor = found.full_tensor() if hasattr(found, "full_tensor") else found
    return whole
