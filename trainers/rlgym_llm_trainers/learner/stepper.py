"""One optimizer: AdamW, the course of its learning rate, and steps that are skipped."""

from __future__ import annotations

import math

import torch
from torch import nn

from rlgym_llm.config_schema import OptimConfig
from rlgym_llm_trainers.algorithms.metrics import Metric
from rlgym_llm_trainers.learner.schedule import lr_at

__all__ = ["Stepper"]


class Stepper:
    """Turns accumulated gradients into steps; one that is not finite is skipped and counted.

    Args:
        module: whose parameters are trained.
        optim: AdamW and its learning rate.
        grad_clip: largest norm of the gradient.
        num_updates: planned steps, over which the learning rate runs its course.
        section: names the metrics, ``actor`` or ``critic``.
    """

    def __init__(
        self,
        module: nn.Module,
        optim: OptimConfig,
        *,
        grad_clip: float,
        num_updates: int,
        section: str,
    ) -> None:
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optim = optim
        self._grad_clip = grad_clip
        self._num_updates = num_updates
        self._section = section
        self.updates_done = 0
        """Updates so far, skipped ones too: the place in the course of the learning rate."""
        self.optimizer = torch.optim.AdamW(
            self._parameters,
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            fused=True,
        )

    def begin(self) -> None:
        """Forgets old gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> tuple[bool, dict[str, Metric]]:
        """Whether the weights were changed, and ``<section>/{grad_norm,lr,skipped_ratio}``."""
        lr = lr_at(
            self.updates_done,
            base_lr=self._optim.lr,
            kind=self._optim.lr_scheduler_type,
            warmup_steps=self._optim.lr_warmup_steps,
            total_steps=self._num_updates,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        grad_norm = float(nn.utils.clip_grad_norm_(self._parameters, self._grad_clip))
        is_finite = math.isfinite(grad_norm)
        if is_finite:
            self.optimizer.step()
        self.updates_done += 1
        return is_finite, {
            f"{self._section}/grad_norm": Metric.mean(grad_norm, 1),
            f"{self._section}/lr": Metric.mean(lr, 1),
            f"{self._section}/skipped_ratio": Metric.mean(float(not is_finite), 1),
        }
