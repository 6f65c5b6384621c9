"""The losses of TRL's ``GRPOTrainer``, of log-probs that are given.

They stand inside a method of the trainer. It is called as it is, on a stand-in that answers what
the method asks of its trainer: the settings, and log-probs in the place of a model's.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from conformance_cases import Rollouts
from conformance_gradients import LENGTH, value_and_gradient
from torch import Tensor
from trl import GRPOTrainer

__all__ = ["trl_loss"]


def trl_loss(
    drawn: Rollouts,
    advantages: Tensor,
    *,
    loss_type: str = "dapo",
    low: float = 0.2,
    high: float = 0.2,
    delta: float | None = None,
    level: str = "token",
    beta: float = 0.0,
    use_bias_correction_kl: bool = False,
    taus: tuple[float, float] = (1.0, 1.05),
    old: str | None = "given",
    weights: Tensor | None = None,
    entropies: Tensor | None = None,
    accumulation: int = 1,
    num_items: Tensor | None = None,
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """(value, gradient [N, T], metrics) of one micro-batch under these settings of TRL."""
    metrics: Any = {"train": defaultdict(list)}
    given = torch.zeros_like(drawn.mask) if entropies is None else entropies
    logprobs_now: list[Tensor] = []
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs_now[-1], given, None),
        _metrics=metrics,
        accelerator=Accelerator(cpu=True),
        args=SimpleNamespace(
            delta=delta,
            use_bias_correction_kl=use_bias_correction_kl,
            sapo_temperature_pos=taus[0],
            sapo_temperature_neg=taus[1],
            steps_per_generation=accumulation,
        ),
        aux_loss_enabled=False,
        beta=beta,
        current_gradient_accumulation_steps=accumulation,
        entropy_coef=1.0,
        epsilon_high=high,
        epsilon_low=low,
        importance_sampling_level=level,
        loss_type=loss_type,
        max_completion_length=LENGTH,
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_adaptive_entropy=False,
        use_vllm=weights is not None,
        vllm_importance_sampling_correction=True,
        _entropy_bonus_enabled=entropies is not None,
    )
    ids = torch.ones(drawn.mask.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": drawn.mask,
        "advantages": advantages,
        "old_per_token_logps": drawn.old_logprobs if old else None,
        "ref_per_token_logps": drawn.ref_logprobs,
        "num_items_in_batch": drawn.mask.sum() if num_items is None else num_items,
        "importance_sampling_ratio": weights,
    }

    def run(at: Tensor) -> Tensor:
        logprobs_now.append(at)
        loss: Tensor = GRPOTrainer._compute_loss(trainer, None, inputs) + 0 * at.sum()
        return loss

    value, gradient = value_and_gradient(run, drawn.logprobs)
    return value, gradient, {name: values[-1] for name, values in metrics["train"].items()}
