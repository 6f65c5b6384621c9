"""Losses of samples of another policy beside verl's: weighed, and rejected."""

from __future__ import annotations

from typing import Any

from conformance_cases import NUM_SEEDS, Rollouts, draw
from conformance_gradients import MODES, our_policy_loss
from conformance_ledger import Ledger
from conformance_verl_losses import CLIPS, OF_SEQUENCES, verl_loss
from rlgym_llm_trainers.algorithms.correction import rollout_correction
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.cispo import cispo_loss
from rlgym_llm_trainers.algorithms.losses.gmpo import gmpo_loss
from rlgym_llm_trainers.algorithms.losses.gspo import gspo_loss
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.workers.config import PolicyLossConfig

__all__ = ["ARGUMENTS", "compare_weighed"]

ARGUMENTS = {
    "geo_mean, weights": "a token's weight weighs its loss; verl takes their geometric mean",
    "rejected tokens": "they stay in the denominators; verl divides by those left",
}


def compare_weighed(ledger: Ledger) -> None:
    """Weights, rejected tokens, and verl's bypass mode."""
    for seed in range(NUM_SEEDS):
        compare_weights(ledger, draw(seed))
        compare_rejection(ledger, draw(seed))
        compare_bypass(ledger, draw(seed))


def compare_weights(ledger: Ledger, drawn: Rollouts) -> None:
    """Weights of samples of another policy, and tokens that were rejected."""
    weights = (drawn.values.exp() * drawn.mask).clamp(max=2.0)
    clips = CLIPS[0]
    options: dict[str, Any] = {"clip_low": clips["low"], "clip_high": clips["high"]}
    for mode in MODES:
        for loss, name in (
            (ppo_clip_loss, "vanilla"),
            (gspo_loss, "gspo"),
            (cispo_loss, "cispo"),
        ):
            found = our_policy_loss(loss, drawn, drawn.advantages, mode, weights=weights, **options)
            theirs = verl_loss(name, drawn, drawn.advantages, mode, clips, weights=weights)
            ledger.same(f"{name} with weights", found[0], theirs[0])
            ledger.same(f"{name} with weights, gradient", found[1], theirs[1])
    constant = weights[:, :1].clamp(min=0.1).expand_as(weights) * drawn.mask
    runs = []
    for these in (weights.clamp(min=0.1) * drawn.mask, constant):
        advantages = drawn.sequence_advantages
        found = our_policy_loss(
            gmpo_loss, drawn, advantages, OF_SEQUENCES, weights=these, **options
        )
        theirs = verl_loss("geo_mean", drawn, advantages, "", clips, weights=these)
        runs.append((found[0], theirs[0]))
    ledger.deviates("geo_mean, weights", *runs[0], undone=runs[1])


def compare_rejection(ledger: Ledger, drawn: Rollouts) -> None:
    """A rejected token: weight 0 here, out of the mask there."""
    kept = drawn.mask * (drawn.values < 1.0)
    options: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28}
    found = our_policy_loss(
        ppo_clip_loss, drawn, drawn.advantages, "token-mean", weights=kept, **options
    )
    left = Rollouts(**{**vars(drawn), "mask": kept})
    theirs = verl_loss("vanilla", left, drawn.advantages, "token-mean", CLIPS[0])
    ledger.deviates(
        "rejected tokens",
        found[0],
        theirs[0],
        undone=(found[1] * drawn.mask.sum(), theirs[1] * kept.sum()),
    )


def compare_bypass(ledger: Ledger, drawn: Rollouts) -> None:
    """Verl's bypass mode, whose denominators keep the rejected tokens too."""
    rules = RolloutCorrectionConfig(
        rollout_is=None, rollout_rs="token_k1", rollout_rs_threshold="0.5_2.0", bypass_mode=True
    )
    kept = rollout_correction(
        drawn.logprobs, drawn.old_logprobs, drawn.mask, reject_by="token", bounds=(0.5, 2.0)
    )
    for mode in ("token-mean", "seq-mean-token-sum"):
        found = our_policy_loss(
            ppo_clip_loss, drawn, drawn.advantages, mode, weights=kept.weights, clip_high=0.28
        )
        theirs = verl_loss(
            "bypass_mode",
            drawn,
            drawn.advantages,
            mode,
            CLIPS[0],
            denominators={
                "batch_num_tokens": drawn.mask.sum(),
                "global_batch_size": len(drawn.mask),
            },
            policy_loss=PolicyLossConfig(rollout_correction=rules),
        )
        ledger.same("bypass mode with rejected tokens", found[0], theirs[0])
        ledger.same("bypass mode with rejected tokens, gradient", found[1], theirs[1])
