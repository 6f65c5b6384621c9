"""Where the reward of a rollout lands on its tokens, and the KL penalty inside the reward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlgym_llm_trainers.aggregate import masked
from rlgym_llm_trainers.metrics import Metric

__all__ = ["kl_metrics", "penalized_rewards", "token_rewards"]


def token_rewards(
    outcomes: Tensor, mask: Tensor, *, kl: Tensor | None = None, kl_coef: float = 0.0
) -> Tensor:
    """Token rewards [B, T]: the outcome on the last sampled token, minus ``kl_coef * kl`` on each.

    A row sums to ``outcome - kl_coef * sum(kl over its mask)``. Tokens under mask 0 (prompt,
    observations, padding) get exactly 0, whatever their kl.

    Args:
        outcomes: one reward per sequence, [B].
        mask: bool [B, T], True on sampled tokens; ValueError where a row has none.
        kl: per-token KL to the reference [B, T], for ``use_kl_in_reward``.
        kl_coef: its coefficient beta.

    >>> token_rewards(torch.tensor([1.0]), torch.tensor([[True, False, True]]),
    ...               kl=torch.tensor([[0.5, 9.0, 0.25]]), kl_coef=1.0)
    tensor([[-0.5000,  0.0000,  0.7500]])
    """
    mask = mask.bool()
    if not bool(mask.any(-1).all()):
        raise ValueError("a sequence without a sampled token has nowhere to put its reward")
    positions = torch.arange(mask.shape[-1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(-1, keepdim=True)  # [B, 1]
    rewards = torch.zeros(mask.shape, dtype=outcomes.dtype, device=outcomes.device)
    rewards = rewards.scatter(-1, last, outcomes[:, None])
    if kl is None:
        return rewards
    return rewards - kl_coef * masked(kl.detach(), mask).to(rewards.dtype)


def penalized_rewards(
    rewards: Sequence[float | None], kl: Tensor, mask: Tensor, *, kl_coef: float
) -> list[float | None]:
    """Sequence rewards with the KL penalty inside: ``R - kl_coef * sum(mask * kl)``, in float64.

    The form that group-relative advantages take. An unscored rollout (None) stays unscored.
    Score 9.5, kl_coef .5, kl [.1, 5, .3] under mask [1, 0, 1]: 9.5 - .5 * .4 = 9.3.
    """
    if len(rewards) != len(mask):
        raise ValueError(f"{len(rewards)} rewards but {len(mask)} sequences")
    penalties = (kl_coef * masked(kl, mask).double().sum(-1)).tolist()
    return [
        None if reward is None else reward - penalty
        for reward, penalty in zip(rewards, penalties, strict=True)
    ]


def kl_metrics(kl: Tensor, mask: Tensor, *, kl_coef: float) -> dict[str, Metric]:
    """``actor/reward_kl_penalty`` (mean kl over sampled tokens) and its ``_coeff``."""
    total = masked(kl, mask).double().sum().item()
    return {
        "actor/reward_kl_penalty": Metric.mean(total, int(mask.bool().sum())),
        "actor/reward_kl_penalty_coeff": Metric.mean(kl_coef, 1),
    }
