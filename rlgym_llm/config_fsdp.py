"""The schema of how a model is spread over ranks, and of what of it is trained."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from rlgym_llm.config_base import Natural, Positive, Section

__all__ = ["FsdpConfig", "LoraKeys"]


class FsdpConfig(Section):
    """What leaves the GPU while it is not used; for training on GPUs under torchrun."""

    param_offload: bool = False
    """Keeps parameters, gradients and optimizer states in the memory of the CPU; each layer is on
    the GPU for as long as it computes."""
    optimizer_offload: bool = False
    """Keeps the optimizer states in the memory of the CPU between updates."""


class LoraKeys(Section):
    """Low-rank adapters, trained in the place of the weights."""

    lora_rank: Natural = 0
    """Trains adapters of this rank (LoRA, by peft) and leaves the weights; 0 trains the weights.
    What samples and what is saved has them merged."""
    lora_alpha: Positive = 16.0
    """Adapters count `lora_alpha / lora_rank` times."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Modules that get an adapter, such as `[q_proj, v_proj]`; all-linear is all but the head."""

    @model_validator(mode="after")
    def _check_lora(self) -> Self:
        if not self.lora_rank:
            for name in ("lora_alpha", "target_modules"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect without lora_rank")
        return self
