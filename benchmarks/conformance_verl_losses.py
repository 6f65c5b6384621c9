"""Policy losses beside those of verl's registry, in value and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from conformance_cases import NUM_SEEDS, Rollouts, draw
from conformance_gradients import LENGTH, MODES, our_policy_loss, value_and_gradient
from conformance_ledger import Ledger
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.cispo import cispo_loss
from rlgym_llm_trainers.algorithms.losses.dppo_tv import dppo_tv_loss
from rlgym_llm_trainers.algorithms.losses.gmpo import gmpo_loss
from rlgym_llm_trainers.algorithms.losses.gpg import gpg_loss
from rlgym_llm_trainers.algorithms.losses.gspo import gspo_loss
from rlgym_llm_trainers.algorithms.losses.sapo import sapo_loss
from torch import Tensor
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

__all__ = ["ARGUMENTS", "CLIPS", "OF_SEQUENCES", "compare_losses", "verl_loss"]

ARGUMENTS = {
    "sapo's aggregation": "the key loss_agg_mode is heeded; verl's sapo has its own",
    "geo_mean's aggregation": "as of sapo; verl's geo_mean takes the mean over rows",
    "geo_mean's pg_clipfrac": "of tokens that the clip acts on; verl's, of all beyond it",
    "geo_mean, empty rows": "a row without a trained token leaves the mean; verl's divides by it",
    "gspo's bound": "one bound of 20 nats for every ratio; verl's gspo has 10, above only",
    "dppo_tv's default": "20 as published; verl writes 20 and takes the actor's clip_ratio_c of 3",
    "ppo_kl of far tokens": "log-ratios clamped to 20 nats under every loss; verl's, under some",
}

OF_SEQUENCES = "seq-mean-token-mean"
CLIPS = ({"low": 0.2, "high": 0.28}, {"low": 0.1, "high": 0.1}, {"low": 3e-4, "high": 4e-4})
_SHARES = ("actor/ppo_kl", "actor/pg_clipfrac", "actor/pg_clipfrac_lower")


def compare_losses(ledger: Ledger) -> None:
    """All policy losses of ours that verl has too."""
    for seed in range(NUM_SEEDS):
        for drawn in (draw(seed), draw(seed, empty_rows=2), wild(seed)):
            compare_policy_losses(ledger, drawn)
            compare_dppo(ledger, drawn)
        compare_far_kl(ledger, wild(seed))
        compare_sequence_losses(ledger, draw(seed))
    compare_bounds(ledger)


def wild(seed: int) -> Rollouts:
    """Rollouts with some log-ratios beyond every bound, of both signs."""
    drawn = draw(seed, spread=1.5)
    logprobs, old = drawn.logprobs.clone(), drawn.old_logprobs.clone()
    old[::4, 0] = logprobs[::4, 0] - 25
    logprobs[1::3, 0] = old[1::3, 0] - 25
    return Rollouts(**{**vars(drawn), "logprobs": logprobs, "old_logprobs": old})


def compare_policy_losses(ledger: Ledger, drawn: Rollouts) -> None:
    """Losses of single tokens, in every mode of aggregation, with their metrics."""
    advantages = drawn.advantages
    for mode in MODES:
        for clips in CLIPS:
            low, high = clips["low"], clips["high"]
            for loss, name, bound in (
                (partial(ppo_clip_loss, clip_c=3.0), "vanilla", 3.0),
                (partial(ppo_clip_loss, clip_c=1.5), "vanilla", 1.5),
                (cispo_loss, "cispo", 3.0),
            ):
                found = our_policy_loss(loss, drawn, advantages, mode, clip_low=low, clip_high=high)
                theirs = verl_loss(name, drawn, advantages, mode, clips, clip_ratio_c=bound)
                same_loss(ledger, name, found, theirs)
        found = our_policy_loss(gpg_loss, drawn, advantages, mode)
        same_loss(ledger, "gpg", found, verl_loss("gpg", drawn, advantages, mode, CLIPS[0]))
    found = our_policy_loss(sapo_loss, drawn, advantages, OF_SEQUENCES, tau_pos=1.0, tau_neg=1.05)
    theirs = verl_loss("sapo", drawn, advantages, "token-mean", CLIPS[0])
    same_loss(ledger, "sapo", found, theirs)
    by_token = our_policy_loss(sapo_loss, drawn, advantages, "token-mean")
    ledger.deviates("sapo's aggregation", by_token[0], theirs[0], undone=(found[0], theirs[0]))


def compare_dppo(ledger: Ledger, drawn: Rollouts) -> None:
    """DPPO, in every mode of aggregation, with its metrics."""
    for mode in MODES:
        for clips in CLIPS:
            found = our_policy_loss(
                partial(dppo_tv_loss, max_ratio=20.0),
                drawn,
                drawn.advantages,
                mode,
                clip_low=clips["low"],
                clip_high=clips["high"],
            )
            theirs = verl_loss("dppo_tv", drawn, drawn.advantages, mode, clips, clip_ratio_c=20.0)
            same_loss(ledger, "dppo_tv", found, theirs)


def compare_far_kl(ledger: Ledger, drawn: Rollouts) -> None:
    """The mean log-ratio with tokens beyond 20 nats, under the losses whose verl does not clamp."""
    name, advantages = "actor/ppo_kl", drawn.sequence_advantages
    mask = drawn.mask.bool()
    as_it_is = (drawn.old_logprobs - drawn.logprobs)[mask].mean()
    for loss, verls in ((gpg_loss, "gpg"), (gspo_loss, "gspo"), (gmpo_loss, "geo_mean")):
        found = our_policy_loss(loss, drawn, advantages, OF_SEQUENCES)[2][name]
        theirs = verl_loss(verls, drawn, advantages, OF_SEQUENCES, CLIPS[0])[2].get(name)
        if theirs is not None:
            ledger.deviates("ppo_kl of far tokens", found, theirs, undone=(as_it_is, theirs))


def compare_sequence_losses(ledger: Ledger, drawn: Rollouts) -> None:
    """Losses of whole sequences: GSPO in every mode, GMPO in the one that verl has."""
    for clips in (*CLIPS, {"low": 0.4, "high": 0.4}):
        options: dict[str, Any] = {"clip_low": clips["low"], "clip_high": clips["high"]}
        for mode in MODES:
            for advantages in (drawn.advantages, drawn.sequence_advantages):
                found = our_policy_loss(gspo_loss, drawn, advantages, mode, **options)
                same_loss(ledger, "gspo", found, verl_loss("gspo", drawn, advantages, mode, clips))
        advantages = drawn.sequence_advantages
        found = our_policy_loss(gmpo_loss, drawn, advantages, OF_SEQUENCES, **options)
        theirs = verl_loss("geo_mean", drawn, advantages, "token-mean", clips)
        ledger.same("gmpo", found[0], theirs[0])
        ledger.same("gmpo, gradient", found[1], theirs[1])
        ledger.same("gmpo, actor/ppo_kl", found[2]["actor/ppo_kl"], theirs[2]["actor/ppo_kl"])
        compare_clipped_share(ledger, drawn, clips)
        by_token = our_policy_loss(gmpo_loss, drawn, advantages, "token-mean", **options)
        ledger.deviates(
            "geo_mean's aggregation", by_token[0], theirs[0], undone=(found[0], theirs[0])
        )


def compare_clipped_share(ledger: Ledger, drawn: Rollouts, clips: Mapping[str, float]) -> None:
    """GMPO's share of clipped tokens; where ratios moved as advantages ask, verl's is ours."""
    advantages = drawn.sequence_advantages
    moved = (drawn.logprobs - drawn.old_logprobs).abs() * advantages.sign()
    apart = []
    for old in (drawn.old_logprobs, drawn.logprobs - moved):
        these = Rollouts(**{**vars(drawn), "old_logprobs": old})
        found = our_policy_loss(
            gmpo_loss,
            these,
            advantages,
            OF_SEQUENCES,
            clip_low=clips["low"],
            clip_high=clips["high"],
        )[2]
        theirs = verl_loss("geo_mean", these, advantages, "", clips)[2]
        both = theirs["actor/pg_clipfrac"] + theirs["actor/pg_clipfrac_lower"]
        apart.append((found["actor/pg_clipfrac"], both))
    ledger.deviates("geo_mean's pg_clipfrac", *apart[0], undone=apart[1])


def compare_bounds(ledger: Ledger) -> None:
    """Rows that nothing trains, ratios beyond every clip, and a default."""
    drawn = draw(0, empty_rows=2)
    clips = {"low": 0.4, "high": 0.4}
    options: dict[str, Any] = {"clip_low": 0.4, "clip_high": 0.4}
    advantages = drawn.sequence_advantages
    found = our_policy_loss(gmpo_loss, drawn, advantages, OF_SEQUENCES, **options)
    theirs = verl_loss("geo_mean", drawn, advantages, "", clips)
    rows = len(drawn.mask)
    ledger.deviates(
        "geo_mean, empty rows",
        found[0],
        theirs[0],
        undone=(found[1] * (rows - 2), theirs[1] * rows),
    )
    runs = []
    for shift in (12.0, 8.0):
        moved = draw(1, spread=0.1)
        moved = Rollouts(**{**vars(moved), "old_logprobs": moved.logprobs - shift})
        minus = -torch.ones_like(moved.mask)
        found = our_policy_loss(gspo_loss, moved, minus, "token-mean")
        runs.append((found[1], verl_loss("gspo", moved, minus, "token-mean", CLIPS[2])[1]))
    ledger.deviates("gspo's bound", *runs[0], undone=runs[1])
    drawn = draw(2, spread=1.5)
    clips = {"low": 0.2, "high": 0.2}
    theirs = verl_loss("dppo_tv", drawn, drawn.advantages, "token-mean", clips)
    found = our_policy_loss(dppo_tv_loss, drawn, drawn.advantages, "token-mean")
    at_three = our_policy_loss(dppo_tv_loss, drawn, drawn.advantages, "token-mean", max_ratio=3.0)
    ledger.deviates("dppo_tv's default", found[0], theirs[0], undone=(at_three[1], theirs[1]))


def same_loss(ledger: Ledger, name: str, found: Any, theirs: Any) -> None:
    """Value, gradient and the metrics that both have."""
    ledger.same(name, found[0], theirs[0])
    ledger.same(f"{name}, gradient", found[1], theirs[1])
    for share in _SHARES:
        if share in found[2] and share in theirs[2]:
            ledger.same(f"{name}, {share}", found[2][share], theirs[2][share])


def verl_loss(
    name: str,
    drawn: Rollouts,
    advantages: Tensor,
    mode: str,
    clips: Mapping[str, float],
    *,
    weights: Tensor | None = None,
    denominators: Mapping[str, Any] | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """(value, gradient [N, T], metrics) of a policy loss of verl's registry."""
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=clips["low"],
        clip_ratio_high=clips["high"],
        global_batch_info={"loss_scale_factor": LENGTH, **(denominators or {})},
        **more,
    )
    metrics: dict[str, float] = {}

    def run(logprobs: Tensor) -> Tensor:
        loss, found = get_policy_loss_fn(name)(
            drawn.old_logprobs, logprobs, advantages, drawn.mask, mode, config, weights
        )
        metrics.update(found)
        total: Tensor = loss
        return total

    value, gradient = value_and_gradient(run, drawn.logprobs)
    return value, gradient, metrics
