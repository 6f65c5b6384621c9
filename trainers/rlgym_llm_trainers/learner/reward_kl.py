"""The KL penalty inside the reward: how far each sampled token strays from the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from rlgym_llm_trainers.algorithms.advantages.inputs import Bools, Floats
from rlgym_llm_trainers.algorithms.aggregate import masked
from rlgym_llm_trainers.algorithms.kl import KlKind, kl_penalty
from rlgym_llm_trainers.algorithms.metrics import Metric
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.streams import padded

__all__ = ["kl_metrics", "penalized", "reward_kl"]


def reward_kl(samples: Sequence[TrainingSample], kind: KlKind | str) -> tuple[Tensor, Tensor]:
    """(KL [B, T] in nats, float64, mask [B, T]) of the samples, right-padded; 0 off the mask.

    Of the policy before the update against the reference: from the old log-probs, or from the
    generator's where those are the old ones. ValueError where a sample has no ``ref_logprobs``.

    Log-probs -.1 and -.2 against -.6 and -.5 of the reference: k1 is .5 and .3.
    """
    if any(sample.ref_logprobs is None for sample in samples):
        raise ValueError("a KL penalty needs the reference's log-probs")
    logprobs = padded([sample.old_logprobs or sample.rollout_logprobs for sample in samples])
    ref_logprobs = padded([sample.ref_logprobs or () for sample in samples])
    mask = padded([sample.loss_mask for sample in samples]).bool()
    return masked(kl_penalty(logprobs, ref_logprobs, kind), mask), mask


def penalized(token_rewards: Floats, kl: Floats, mask: Bools, *, kl_coef: float) -> Floats:
    """Token rewards less ``kl_coef * kl`` on each sampled token, all [B, T], in float64.

    A row then sums to ``R - kl_coef * sum(mask * kl)``. What stands off the mask is not touched.

    >>> rewards, kl = np.array([[0.0, 0.0, 1.0]]), np.array([[0.5, np.nan, 0.25]])
    >>> penalized(rewards, kl, np.array([[True, False, True]]), kl_coef=1.0).tolist()
    [[-0.5, 0.0, 0.75]]
    """
    return np.where(mask, token_rewards - kl_coef * kl, token_rewards)


def kl_metrics(kl: Tensor, mask: Tensor, *, kl_coef: float) -> dict[str, Metric]:
    """``actor/reward_kl_penalty`` (mean kl over sampled tokens) and its ``_coeff``."""
    total = masked(kl, mask).double().sum().item()
    return {
        "actor/reward_kl_penalty": Metric.mean(total, int(mask.bool().sum())),
        "actor/reward_kl_penalty_coeff": Metric.mean(kl_coef, 1),
    }
