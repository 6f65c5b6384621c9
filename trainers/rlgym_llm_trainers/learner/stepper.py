"""One optimizer: AdamW, the course of its learning rate, and steps that are skipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlgym_llm.config_schema import OptimConfig
from rlgym_llm.errors import RlgymError
from rlgym_llm_trainers.algorithms.metrics import Metric
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.learner.schedule import lr_at
from rlgym_llm_trainers.learner.stored_state import load_state, save_state

__all__ = ["Stepper"]


class Stepper:
    """Turns accumulated gradients into steps; one that is not finite is skipped and counted.

    Args:
        module: whose parameters are trained.
        optim: AdamW and its learning rate.
        grad_clip: largest norm of the gradient.
        num_updates: planned steps, over which the learning rate runs its course.
        section: names the metrics, ``actor`` or ``critic``.
        max_skipped: steps in a row that may be skipped; after one more RlgymError ends the run.
        offloads: keeps what the optimizer knows in the memory of the CPU between steps.
        note: hears why a step was skipped.
    """

    def __init__(
        self,
        module: nn.Module,
        optim: OptimConfig,
        *,
        grad_clip: float,
        num_updates: int,
        section: str,
        max_skipped: int = 10,
        offloads: bool = False,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._module = module
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optim = optim
        self._grad_clip = grad_clip
        self._num_updates = num_updates
        self._section = section
        self._max_skipped = max_skipped
        self._offloads = offloads
        self._note = note
        self._faults: list[str] = []
        self._num_skipped = 0
        self.updates_done = 0
        """Updates so far, skipped ones too: the place in the course of the learning rate."""
        self.is_broken = False
        """Whether an update left weights that are not finite; nobody should save or sample them."""
        self.optimizer = torch.optim.AdamW(
            self._parameters,
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            fused=True,
        )

    def save(self, folder: str | Path, ranks: Ranks = ALONE, **counts: int) -> None:
        """Writes weights, optimizer, updates and ``counts`` into a new folder; every rank calls."""
        counts |= {"updates_done": self.updates_done, "num_skipped": self._num_skipped}
        save_state(folder, self._module, self.optimizer, counts, ranks=ranks)

    def load(self, folder: str | Path, ranks: Ranks = ALONE) -> dict[str, int]:
        """Goes on from there, and returns the counts; see `load_state`. Every rank calls it."""
        counts = load_state(folder, self._module, self.optimizer, ranks=ranks)
        self.updates_done, self._num_skipped = counts["updates_done"], counts["num_skipped"]
        if self._offloads:
            self._move_state("cpu")
        return counts

    def begin(self) -> None:
        """Forgets old gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        self._faults = []

    def refuse(self, faults: Sequence[str]) -> None:
        """Keeps the next `step` from changing the weights, where there are any ``faults``."""
        self._faults += faults

    def step(self) -> tuple[bool, dict[str, Metric]]:
        """Whether the weights were changed, and ``<section>/{lr,skipped_ratio}``.

        And ``grad_norm`` of a step that was not skipped. Over sharded parameters the norm is of all
        ranks, so that they decide alike. Raises RlgymError after too many skipped steps in a row,
        and where the weights are not finite after it.
        """
        lr = lr_at(
            self.updates_done,
            base_lr=self._optim.lr,
            kind=self._optim.lr_scheduler_type,
            warmup_steps=self._optim.lr_warmup_steps,
            total_steps=self._num_updates,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        grad_norm = _number(nn.utils.clip_grad_norm_(self._parameters, self._grad_clip))
        if not self._faults and not math.isfinite(grad_norm):
            self._faults = [f"norm of the gradient {grad_norm}"]
        is_good, weight_norm = not self._faults, 0.0
        if is_good:
            if self._offloads:
                self._move_state(None)
            self.optimizer.step()
            weight_norm = _number(nn.utils.get_total_norm(self._parameters))
            self.is_broken = not math.isfinite(weight_norm)
            if self._offloads:
                self._move_state("cpu")
        self.optimizer.zero_grad(set_to_none=True)  # as large as the weights, until the next batch
        self.updates_done += 1
        self._num_skipped = 0 if is_good else self._num_skipped + 1
        if not is_good:
            self._say_skipped()
        if self.is_broken:
            raise RlgymError(
                f"{self._section}: the weights are not finite after update {self.updates_done} "
                f"(norm {weight_norm}): lower --{self._section}.optim.lr ({lr:g}) or "
                f"weight_decay ({self._optim.weight_decay:g}), or raise eps ({self._optim.eps:g})"
            )
        metrics = {
            f"{self._section}/lr": Metric.mean(lr, 1),
            f"{self._section}/skipped_ratio": Metric.mean(float(not is_good), 1),
        }
        if is_good:  # else the mean over the step's updates would be no number
            metrics[f"{self._section}/grad_norm"] = Metric.mean(grad_norm, 1)
        return is_good, metrics

    def _move_state(self, device: str | None) -> None:
        """To ``device``, or to where each parameter is."""
        for parameter, state in self.optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and name != "step":
                    state[name] = value.to(device or parameter.device)

    def _say_skipped(self) -> None:
        why = ", ".join(self._faults[:3]) + (", ..." if len(self._faults) > 3 else "")
        said = f"{self._section}: update {self.updates_done} was skipped: {why}"
        if self._num_skipped > self._max_skipped:
            raise RlgymError(
                f"{said}; so were the {self._max_skipped} before it "
                f"(--{self._section}.max_skipped_steps): lower --{self._section}.optim.lr"
            )
        if self._note is not None:
            self._note(said)


def _number(norm: Any) -> float:
    """A norm as a number; one over shards is reduced, so every rank must ask."""
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
