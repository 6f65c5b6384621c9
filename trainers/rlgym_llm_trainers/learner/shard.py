"""A model spread over the ranks, FSDP2: each has a part of every parameter and of its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlgym_llm_trainers.learner.ranks import Ranks

__all__ = ["compile_layers", "shard"]


def shard(module: nn.Module, ranks: Ranks, *, offloads: bool = False) -> None:
    """Shards the module's parameters over the ranks, by decoder layer and the rest as the root.

    Every rank has the same whole parameters before, and its part of them afterwards; they are whole
    inside ``module.forward`` and nowhere else. Gradients are summed over the ranks, not averaged:
    each rank's loss is a share by denominators of all. On CUDA the arithmetic is in bfloat16, what
    is kept and what is summed in the parameters' own float32. Nothing is done for one rank alone.

    Args:
        module: around all that reads parameters, the head included, so that one forward pass is
            one of the root's.
        ranks: which must all call this, with the same module.
        offloads: parameters, gradients and optimizer states stay in the memory of the CPU, and each
            layer comes to the GPU for as long as it computes.
    """
    if ranks.mesh is None:
        return
    from torch.distributed.fsdp import (
        CPUOffloadPolicy,
        FSDPModule,
        MixedPrecisionPolicy,
        OffloadPolicy,
        fully_shard,
    )

    is_cuda = ranks.mesh.device_type == "cuda"
    how: dict[str, Any] = {
        "mesh": ranks.mesh,
        # The root too: its parameters are whole inside its forward pass only, whoever looks next.
        "reshard_after_forward": True,
        # Inputs stay as they are: a cast would rebuild the layout that all layers share.
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        if is_cuda
        else MixedPrecisionPolicy(),
        "offload_policy": CPUOffloadPolicy() if offloads else OffloadPolicy(),
    }
    for layer in _decoder_layers(module):
        fully_shard(layer, **how)
    fully_shard(module, **how)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)


def compile_layers(module: nn.Module) -> None:
    """Compiles each decoder layer, in place, for sequences of any length; before `shard`."""
    for layer in _decoder_layers(module):
        layer.compile(dynamic=True)


def _decoder_layers(module: nn.Module) -> list[nn.Module]:
    """The layers, as transformers names what must stay on one device; none of a foreign model."""
    named = (getattr(part, "_no_split_modules", None) for part in module.modules())
    names = {name for part in named for name in part or ()}
    return [part for part in module.modules() if type(part).__name__ in names]
