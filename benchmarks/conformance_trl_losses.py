"""Policy losses, the KL term and the entropy bonus beside TRL's, in value and gradient."""

from __future__ import annotations

from typing import Any

import torch
from conformance_cases import NUM_SEEDS, Rollouts, draw, on_response, whole
from conformance_gradients import (
    our_policy_loss,
    our_reduce,
    value_and_gradient,
    whole_mask,
)
from conformance_ledger import Ledger
from conformance_trl_trainer import trl_loss
from rlgym_llm_trainers.algorithms.losses import entropy_loss, kl_loss, ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.cispo import cispo_loss
from rlgym_llm_trainers.algorithms.losses.gspo import gspo_loss
from rlgym_llm_trainers.algorithms.losses.sapo import sapo_loss
from torch import Tensor

__all__ = ["ARGUMENTS", "compare_losses"]

ARGUMENTS = {
    "empty rows": "a row without a trained token leaves the mean; TRL divides by it",
    "micro-batches of bnpo": "divided by the whole step's tokens; TRL's by each micro-batch's",
    "entropy bonus": "aggregated as the policy loss is; TRL's is always over tokens",
    "extreme ratios": "log-ratios end at 20 nats, so that the loss stays finite; TRL's do not",
}

_MODES = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
"""TRL's loss type to our aggregation."""
_CLIPS = ((0.2, 0.2), (0.2, 0.28), (3e-4, 4e-4))
_METRICS = {
    "actor/clip_ratio/low_mean": "clip_ratio/low_mean",
    "actor/clip_ratio/high_mean": "clip_ratio/high_mean",
}


def compare_losses(ledger: Ledger) -> None:
    """Every loss type of ours and TRL's, in value and gradient."""
    for seed in range(NUM_SEEDS):
        drawn = draw(seed)
        compare_clipped(ledger, drawn)
        compare_sequences(ledger, drawn)
        compare_others(ledger, drawn)
        compare_kl(ledger, drawn)
        compare_weights(ledger, drawn)
        compare_entropy(ledger, drawn)
        compare_empty_rows(ledger, draw(seed, empty_rows=2))
        compare_micro_batches(ledger, drawn)
    compare_extremes(ledger)


def compare_clipped(ledger: Ledger, drawn: Rollouts) -> None:
    """The clipped surrogate in each aggregation; TRL's delta is our clip_c."""
    for kind, mode in _MODES.items():
        for low, high in _CLIPS:
            for delta in (None, 1.5):
                for advantages in (drawn.advantages, drawn.sequence_advantages):
                    found = our_policy_loss(
                        ppo_clip_loss,
                        drawn,
                        advantages,
                        mode,
                        clip_low=low,
                        clip_high=high,
                        clip_c=delta,
                    )
                    theirs = trl_loss(
                        drawn, advantages, loss_type=kind, low=low, high=high, delta=delta
                    )
                    same_loss(ledger, kind, found, theirs)
                    if delta is None:
                        for ours, trl in _METRICS.items():
                            ledger.same(f"{kind}, {trl}", found[2][ours], theirs[2][trl])
    # Without old log-probs the ratio is 1 and only the gradient speaks.
    same = Rollouts(**{**vars(drawn), "old_logprobs": drawn.logprobs})
    found = our_policy_loss(ppo_clip_loss, same, drawn.advantages, "token-mean", clip_c=None)
    theirs = trl_loss(drawn, drawn.advantages, loss_type="dapo", old=None)
    same_loss(ledger, "dapo on-policy", found, theirs)


def compare_sequences(ledger: Ledger, drawn: Rollouts) -> None:
    """``importance_sampling_level="sequence"`` is GSPO, one advantage a sequence."""
    advantages = drawn.sequence_advantages
    for kind, mode in _MODES.items():
        for low, high in (*_CLIPS, (0.01, 0.02)):
            found = our_policy_loss(
                gspo_loss, drawn, advantages, mode, clip_low=low, clip_high=high
            )
            theirs = trl_loss(
                drawn, advantages[:, 0], loss_type=kind, low=low, high=high, level="sequence"
            )
            same_loss(ledger, f"sequence level, {kind}", found, theirs)


def compare_others(ledger: Ledger, drawn: Rollouts) -> None:
    """CISPO, whose bound TRL gives as the ratio itself, and SAPO."""
    for high in (0.2, 1.0, 4.0):
        found = our_policy_loss(
            cispo_loss, drawn, drawn.advantages, "token-mean", clip_low=1.0, clip_high=high
        )
        theirs = trl_loss(drawn, drawn.advantages, loss_type="cispo", high=1 + high)
        same_loss(ledger, "cispo, epsilon_high = 1 + clip_high", found, theirs)
    for pos, neg in ((1.0, 1.05), (0.5, 2.0)):
        found = our_policy_loss(
            sapo_loss, drawn, drawn.advantages, "seq-mean-token-mean", tau_pos=pos, tau_neg=neg
        )
        theirs = trl_loss(drawn, drawn.advantages, loss_type="sapo", taus=(pos, neg))
        same_loss(ledger, "sapo", found, theirs)


def compare_kl(ledger: Ledger, drawn: Rollouts) -> None:
    """The KL to the reference as a loss term, with and without the ratio before it."""
    mask = whole_mask(drawn)
    for kind, mode in _MODES.items():
        for is_corrected in (False, True):
            metrics: dict[str, float] = {}

            def ours(
                at: Tensor,
                mode: str = mode,
                is_corrected: bool = is_corrected,
                metrics: dict[str, float] = metrics,
            ) -> Tensor:
                output = kl_loss(
                    at,
                    whole(drawn.ref_logprobs, drawn.mask),
                    mask,
                    reduce=our_reduce(mask, mode),
                    old_logprobs=whole(drawn.old_logprobs, drawn.mask) if is_corrected else None,
                )
                metrics["kl"] = output.metrics["actor/kl"].result()
                return output.loss

            value, gradient = value_and_gradient(ours, whole(drawn.logprobs, drawn.mask))
            nothing = torch.zeros_like(drawn.mask)
            theirs = trl_loss(
                drawn, nothing, loss_type=kind, beta=1.0, use_bias_correction_kl=is_corrected
            )
            name = "KL term times the ratio" if is_corrected else "KL term"
            same_loss(ledger, name, (value, on_response(gradient, drawn.mask)), theirs)
            ledger.same(f"{name}, kl", metrics["kl"], theirs[2]["kl"])


def compare_weights(ledger: Ledger, drawn: Rollouts) -> None:
    """Weights of samples that another engine drew."""
    weights = (drawn.values.exp() * drawn.mask).clamp(max=2.0)
    for kind, mode in _MODES.items():
        found = our_policy_loss(
            ppo_clip_loss, drawn, drawn.advantages, mode, weights=weights, clip_c=None
        )
        theirs = trl_loss(drawn, drawn.advantages, loss_type=kind, weights=weights)
        same_loss(ledger, f"{kind} with weights", found, theirs)


def compare_entropy(ledger: Ledger, drawn: Rollouts) -> None:
    """The entropy bonus alone: over tokens it is TRL's, in another mode it follows the mode."""
    entropies = drawn.values.abs()
    nothing = torch.zeros_like(drawn.mask)
    values = {}
    for mode in ("token-mean", "seq-mean-token-mean"):
        reduce = our_reduce(drawn.mask, mode)
        values[mode] = entropy_loss(entropies, drawn.mask, reduce=reduce).loss
    theirs = trl_loss(drawn, nothing, loss_type="grpo", entropies=entropies)
    ledger.same("entropy bonus over tokens", values["token-mean"], theirs[0])
    ledger.deviates(
        "entropy bonus",
        values["seq-mean-token-mean"],
        theirs[0],
        undone=(values["token-mean"], theirs[0]),
    )


def compare_empty_rows(ledger: Ledger, drawn: Rollouts) -> None:
    """Completions that train nothing, such as those cut off: out of the mean, or in it as 0."""
    rows = len(drawn.mask)
    for kind in ("grpo", "dr_grpo"):
        found = our_policy_loss(ppo_clip_loss, drawn, drawn.advantages, _MODES[kind], clip_c=None)
        theirs = trl_loss(drawn, drawn.advantages, loss_type=kind)
        ledger.deviates(
            "empty rows", found[0], theirs[0], undone=(found[0] * (rows - 2), theirs[0] * rows)
        )
    found = our_policy_loss(ppo_clip_loss, drawn, drawn.advantages, "token-mean", clip_c=None)
    same_loss(ledger, "dapo, empty rows", found, trl_loss(drawn, drawn.advantages))


def compare_micro_batches(ledger: Ledger, drawn: Rollouts) -> None:
    """A step in two micro-batches of unlike size in tokens: the sum of dapo's is the whole."""
    is_first = torch.arange(len(drawn.mask)) < len(drawn.mask) // 2
    parts = [drawn.rows(is_first.numpy()), drawn.rows(~is_first.numpy())]
    whole_step = our_policy_loss(ppo_clip_loss, drawn, drawn.advantages, "token-mean", clip_c=None)
    sums = {
        kind: sum(
            trl_loss(
                part, part.advantages, loss_type=kind, accumulation=2, num_items=drawn.mask.sum()
            )[0]
            for part in parts
        )
        for kind in ("dapo", "bnpo")
    }
    ledger.same("dapo in two micro-batches", whole_step[0], sums["dapo"])
    by_part = sum(
        our_policy_loss(ppo_clip_loss, part, part.advantages, "token-mean", clip_c=None)[0] / 2
        for part in parts
    )
    ledger.deviates(
        "micro-batches of bnpo", whole_step[0], sums["bnpo"], undone=(by_part, sums["bnpo"])
    )


def compare_extremes(ledger: Ledger) -> None:
    """A token that the sampling policy gave a chance of exp(-800)."""
    drawn = draw(0)
    old = drawn.old_logprobs.clone()
    old[0, 0] = -800.0
    minus = -drawn.advantages.abs()
    runs = []
    for these in (old, drawn.old_logprobs):
        moved = Rollouts(**{**vars(drawn), "old_logprobs": these})
        found = our_policy_loss(ppo_clip_loss, moved, minus, "token-mean", clip_c=None)
        runs.append((found[0], trl_loss(moved, minus)[0]))
    assert torch.isfinite(runs[0][0]), "ours is finite"
    ledger.deviates("extreme ratios", *runs[0], undone=runs[1])


def same_loss(ledger: Ledger, name: str, found: Any, theirs: Any) -> None:
    """Value and gradient."""
    ledger.same(name, found[0], theirs[0])
    ledger.same(f"{name}, gradient", found[1], theirs[1])
