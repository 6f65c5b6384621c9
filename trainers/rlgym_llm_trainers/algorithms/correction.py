"""Correction for samples of another policy than the one that learns; pure, all tensors [B, T].

Samples may come from an older policy, or from a generator that rounds otherwise. With

    rho_t = p_learner(token t) / p_generator(token t) = exp(old_logprob - rollout_logprob)

of the learner *before* the update, a token's loss counts min(rho, C) times (truncated importance
sampling, TIS), and what lies out of bounds counts not at all (masked importance sampling, MIS or
IcePop). rho is of the token, of its sequence (the product over its tokens), or the geometric mean
over them. All is computed in float64 and detached: a weight says from where the samples come, and
no gradient flows through it. What stands under mask 0 may be anything, NaN and inf included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import masked, sequence_means
from rlgym_llm_trainers.algorithms.kl import LOG_RATIO_CLAMP

__all__ = [
    "Correction",
    "RatioLevel",
    "log_ratios",
    "mismatch_metrics",
    "pooled",
    "rollout_correction",
]

RatioLevel = Literal["token", "sequence", "geometric"]
"""Of what rho is: of the token, the product over its sequence, or the geometric mean over it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correction:
    """How much every token counts, and how far the two policies are apart."""

    weights: Tensor  # [B, T], float64
    """0 on tokens that a bound rejected and on those that were not trained anyway, else above."""
    metrics: dict[str, float]
    """``rollout_corr/*`` under verl's names."""


def rollout_correction(
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    mask: Tensor,
    *,
    weigh_by: Literal["token", "sequence"] | None = None,
    threshold: float = 2.0,
    normalize: bool = False,
    reject_by: RatioLevel | None = None,
    bounds: tuple[float, float] = (0.5, 2.0),
) -> Correction:
    """Weights and rejections of a whole step, before it is cut into mini-batches.

    Args:
        old_logprobs: the learner's, before the update.
        rollout_logprobs: the generator's.
        mask: True on the tokens that were sampled and are trained.
        weigh_by: level of the importance weights; None weighs every token 1.
        threshold: C, the largest weight.
        normalize: divides the weights by their mean over the batch: over tokens, or over
            sequences where they are of sequences. It is taken before any rejection.
        reject_by: level of the ratio that must lie within ``bounds``; None rejects nothing.
        bounds: lowest and highest ratio that trains, both included.

    Metrics: those of `mismatch_metrics`; with weights ``rollout_is_*``, see `_weight_metrics`; with
    rejection ``rollout_rs_masked_fraction`` (of tokens) and ``rollout_rs_seq_masked_fraction``
    (sequences that lost a token); none where no token is trained.

    >>> old, rollout = torch.tensor([[-1.0, -2.0, -0.5]]), torch.tensor([[-1.2, -3.5, -0.5]])
    >>> mask = torch.ones(1, 3, dtype=torch.bool)  # ratios 1.2214, 4.4817, 1
    >>> rollout_correction(old, rollout, mask, weigh_by="token").weights.round(decimals=4).tolist()
    [[1.2214, 2.0, 1.0]]
    >>> rollout_correction(old, rollout, mask, reject_by="token").weights.tolist()
    [[1.0, 0.0, 1.0]]
    """
    mask = mask.bool()
    log_ratio = log_ratios(old_logprobs, rollout_logprobs, mask)
    weights = mask.double()
    if not mask.any():
        return Correction(weights=weights, metrics={})
    metrics = mismatch_metrics(old_logprobs, rollout_logprobs, mask)
    if weigh_by is not None:
        level_log_ratio = pooled(log_ratio, mask, weigh_by)
        weights = masked(_exp(level_log_ratio).clamp(max=threshold), mask)
        metrics |= _weight_metrics(weights, level_log_ratio, mask, weigh_by, threshold)
        if normalize:
            mean = float(
                weights[mask].mean() if weigh_by == "token" else _means(weights, mask).mean()
            )
            weights = weights / mean
            metrics["rollout_is_batch_norm_factor"] = mean
    if reject_by is not None:
        # Compared as logarithms: a ratio beyond exp(20) is still above its bound. NaN is no ratio
        # out of bounds but a broken model, and stays to be seen in the loss.
        low, high = (math.log(bound) for bound in bounds)
        level_log_ratio = pooled(log_ratio, mask, reject_by)
        kept = mask & ~((level_log_ratio < low) | (level_log_ratio > high))
        weights = masked(weights, kept)
        lost = mask & ~kept
        metrics["rollout_rs_masked_fraction"] = _share(lost[mask])
        metrics["rollout_rs_seq_masked_fraction"] = _share(lost.any(-1)[mask.any(-1)])
    return Correction(
        weights=weights,
        metrics={f"rollout_corr/{name}": value for name, value in metrics.items()},
    )


def log_ratios(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor) -> Tensor:
    """The log of rho of every token, in float64, detached and 0 under mask 0; not clamped.

    Raises ValueError where the shapes differ.
    """
    if not old_logprobs.shape == rollout_logprobs.shape == mask.shape:
        raise ValueError(
            f"old_logprobs {tuple(old_logprobs.shape)}, rollout_logprobs "
            f"{tuple(rollout_logprobs.shape)} and mask {tuple(mask.shape)} differ in shape"
        )
    old, rollout = old_logprobs.detach().double(), rollout_logprobs.detach().double()
    return masked(old, mask) - masked(rollout, mask)


def pooled(log_ratio: Tensor, mask: Tensor, level: RatioLevel) -> Tensor:
    """The log-ratio that stands for every token at this level; on sequences their sum or mean.

    >>> log_ratio = torch.tensor([[0.5, -0.1, 0.0]], dtype=torch.float64)
    >>> mask = torch.tensor([[True, True, False]])
    >>> pooled(log_ratio, mask, "sequence").tolist()
    [[0.4, 0.4, 0.4]]
    >>> pooled(log_ratio, mask, "geometric").tolist()
    [[0.2, 0.2, 0.2]]
    """
    if level == "token":
        return log_ratio
    if level == "geometric":
        return sequence_means(log_ratio, mask).expand_as(log_ratio)
    return masked(log_ratio, mask).sum(-1, keepdim=True).expand_as(log_ratio)


def mismatch_metrics(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor
) -> dict[str, float]:
    """How far learner and generator are apart, under verl's names without their prefix.

    Over tokens, with d = rollout_logprob - old_logprob: ``kl``, the mean of d, estimates
    KL(generator || learner); ``k3_kl``, the mean of exp(-d) + d - 1, does so and is never negative;
    ``chi2_token`` is the mean of rho^2, minus 1. Over sequences, with D = the mean of d over the
    tokens of one: ``log_ppl_diff`` is the mean of D, ``log_ppl_abs_diff`` of abs(D),
    ``log_ppl_diff_max`` and ``_min`` its extremes, ``ppl_ratio`` the mean of exp(D);
    ``training_ppl`` and ``rollout_ppl`` are the means of exp(-mean log-prob) of the learner and of
    the generator; ``chi2_seq`` is the mean of squared products of rho, minus 1.

    One sequence of log-probs (-1, -2) by the learner and (-0.5, -2.1) by the generator: d is
    (0.5, -0.1), kl 0.2, training_ppl exp(1.5) = 4.4817, rollout_ppl exp(1.3) = 3.6693 and
    ppl_ratio exp(0.2) = 1.2214; chi2_token is (exp(-1) + exp(0.2)) / 2 - 1 = -0.2054 and chi2_seq
    exp(-0.8) - 1 = -0.5507.
    """
    mask = mask.bool()
    log_ratio = log_ratios(old_logprobs, rollout_logprobs, mask)
    safe = log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    old_means = _means(old_logprobs.detach().double(), mask)
    rollout_means = _means(rollout_logprobs.detach().double(), mask)
    diff = rollout_means - old_means
    products = _exp(pooled(log_ratio, mask, "sequence"))[:, 0][mask.any(-1)]
    found = {
        "kl": -log_ratio[mask].mean(),
        "k3_kl": (torch.expm1(safe) - safe)[mask].mean(),
        "training_ppl": (-old_means).exp().mean(),
        "rollout_ppl": (-rollout_means).exp().mean(),
        "log_ppl_diff": diff.mean(),
        "log_ppl_abs_diff": diff.abs().mean(),
        "log_ppl_diff_max": diff.max(),
        "log_ppl_diff_min": diff.min(),
        "ppl_ratio": diff.exp().mean(),
        "chi2_token": safe.exp()[mask].square().mean() - 1,
        "chi2_seq": products.square().mean() - 1,
    }
    return {name: float(value) for name, value in found.items()}


def _weight_metrics(
    weights: Tensor, log_ratio: Tensor, mask: Tensor, level: RatioLevel, threshold: float
) -> dict[str, float]:
    """What the weights look like, before they are divided by their mean and before any rejection.

    ``rollout_is_{mean,std,min,max}`` are of the truncated weights over tokens (std of the
    population), ``rollout_is_raw_mean`` of the ratios as they were: near 1 for samples of a policy
    that is known rightly. ``rollout_is_eff_sample_size`` is mean(w)^2 / mean(w^2), 1 where all are
    equal. ``rollout_is_ratio_fraction_high`` and ``_low`` are the shares of ratios above C and
    below 1/C, of tokens or of sequences as the level says; ``rollout_is_oob_ratio`` is the share of
    tokens under either. ``rollout_is_seq_{mean,std,max,min,max_deviation}`` are of the mean weight
    of every sequence (std of a sample, 0 for one; deviation from 1), and
    ``rollout_is_seq_fraction_{high,low}`` of its mean ratio, before the truncation.

    Ratios 1.2214, 4.4817 and 1 in one sequence, C = 2: weights 1.2214, 2, 1 of mean 1.4071, std
    0.4289 and effective sample size 1.4071^2 / 2.1639 = 0.9150; fraction_high 1/3.
    """
    ratios = _exp(log_ratio)
    used, raw = weights[mask], ratios[mask]
    sequences, raw_sequences = _means(weights, mask), _means(ratios, mask)
    high, low = math.log(threshold), -math.log(threshold)
    is_high, is_low = log_ratio > high, log_ratio < low
    if level == "token":
        shares = _share(is_high[mask]), _share(is_low[mask])
    else:
        rows = mask.any(-1)
        shares = _share(is_high[rows, 0]), _share(is_low[rows, 0])
    several = len(sequences) > 1
    return {
        "rollout_is_mean": float(used.mean()),
        "rollout_is_std": float(used.std(correction=0)),
        "rollout_is_min": float(used.min()),
        "rollout_is_max": float(used.max()),
        "rollout_is_raw_mean": float(raw.mean()),
        "rollout_is_eff_sample_size": float(used.mean().square() / used.square().mean()),
        "rollout_is_oob_ratio": _share((is_high | is_low)[mask]),
        "rollout_is_ratio_fraction_high": shares[0],
        "rollout_is_ratio_fraction_low": shares[1],
        "rollout_is_seq_mean": float(sequences.mean()),
        "rollout_is_seq_std": float(sequences.std()) if several else 0.0,
        "rollout_is_seq_max": float(sequences.max()),
        "rollout_is_seq_min": float(sequences.min()),
        "rollout_is_seq_max_deviation": float((sequences - 1).abs().max()),
        "rollout_is_seq_fraction_high": _share(raw_sequences > threshold),
        "rollout_is_seq_fraction_low": _share(raw_sequences < 1 / threshold),
    }


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()


def _means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens of every sequence that has one: [at most B]."""
    return sequence_means(values, mask)[mask.any(-1), 0]


def _share(found: Tensor) -> float:
    return float(found.double().mean())
