"""The coefficient of the KL term inside the reward, fixed or led by the KL that is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from rlgym_llm.config_schema import KlCtrlConfig
from rlgym_llm_trainers.algorithms.aggregate import sequence_means

__all__ = ["KlController", "make_kl_controller", "mean_sequence_kl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KlController:
    """A coefficient and the rule by which it moves (arXiv 1909.08593, in verl's units).

    After a batch of n sequences whose KL was k::

        kl_coef *= 1 + clip(k / target_kl - 1, -0.2, 0.2) * min(n / horizon, 1)

    Coefficient .1, target .1, horizon 1000; k = .5, n = 100: .1 * (1 + .2 * .1) = .102. k is
    `mean_sequence_kl`; the paper's target of 6 nats is of a sequence's *sum*.
    """

    kl_coef: float
    """The coefficient now; all that a checkpoint has to keep."""
    target_kl: float | None = None
    """The KL that it aims at, in nats a token; None for a coefficient that does not move."""
    horizon: int = 10_000
    """After so many sequences far above the target it is about 1.2 times as large."""

    def after(self, kl: float, *, num_sequences: int) -> KlController:
        """The controller after a batch; the same one where it is fixed or the KL is not finite."""
        if self.target_kl is None or not math.isfinite(kl):
            return self
        error = min(max(kl / self.target_kl - 1, -0.2), 0.2)
        share = min(num_sequences / self.horizon, 1.0)  # beyond 5 the coefficient could be negative
        return replace(self, kl_coef=self.kl_coef * (1 + error * share))


def make_kl_controller(config: KlCtrlConfig, *, kl_coef: float | None = None) -> KlController:
    """The controller of a configuration; ``kl_coef`` is the one that a checkpoint kept."""
    return KlController(
        kl_coef=config.kl_coef if kl_coef is None else kl_coef,
        target_kl=config.target_kl if config.type == "adaptive" else None,
        horizon=config.horizon,
    )


def mean_sequence_kl(kl: Tensor, mask: Tensor) -> float:
    """The mean over sequences of their mean KL a token; NaN where nothing was sampled.

    Both [B, T]; sequences without a sampled token are left out. [[.1, .3], [.5, x]]: .35.
    """
    mask = mask.bool()
    return float(sequence_means(kl.double(), mask)[mask.any(-1)].mean())
