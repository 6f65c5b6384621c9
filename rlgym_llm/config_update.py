"""What the updates of the policy and of the critic have in common: optimizer and aggregation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlgym_llm.config_base import Decay, Natural, NonNegative, Positive, Section

__all__ = ["LossAggMode", "Lr", "OptimConfig"]

LossAggMode = Literal[
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "prompt-mean",
]
Lr = Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)]


class OptimConfig(Section):
    """AdamW and its learning rate."""

    lr: Lr = 1e-6
    """Highest learning rate."""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; linear and cosine fall to 0."""
    lr_warmup_steps: Natural = 0
    """Optimizer steps over which the learning rate climbs from 0."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay."""
    # verl's and torch's: a batch whose groups are all of equal reward has no gradient, and the long
    # memory of 0.999 keeps the step size through a run of those, where 0.95 would forget it.
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay of the gradient's mean and of its square."""
    eps: Positive = 1e-8
    """Added to the root of the squared gradient."""
