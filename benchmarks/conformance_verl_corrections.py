"""KL and its controller, rollout correction and policy filtration beside verl's."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import torch
from conformance_cases import NUM_SEEDS, Rollouts, draw, on_response, whole
from conformance_gradients import whole_mask
from conformance_ledger import Ledger
from rlgym_llm_trainers.algorithms import kl as our_kl
from rlgym_llm_trainers.algorithms.correction import Correction, rollout_correction
from rlgym_llm_trainers.algorithms.kl_controller import make_kl_controller
from rlgym_llm_trainers.algorithms.pf_ppo import filtration_weights
from rlgym_llm_trainers.learner.reward_kl import penalized
from torch import Tensor
from verl import DataProto
from verl.trainer.config import KLControlConfig
from verl.trainer.ppo.core_algos import (
    compute_pf_ppo_reweight_data,
    compute_rewards,
    get_kl_controller,
    kl_penalty,
)
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

from rlgym_llm.config_schema import KlCtrlConfig

__all__ = ["ARGUMENTS", "compare_corrections"]

ARGUMENTS = {
    "k3": "k3 is as published; verl's is its low_var_kl, whose value ends at 10, gradient and all",
    "k3+": "as of k3: the value of k3; verl's is that of low_var_kl",
    "adaptive KL, huge batch": "n / horizon is at most 1; verl's coefficient can turn negative",
    "adaptive KL, NaN": "a KL that is no number leaves the coefficient; verl's is NaN ever after",
    "rejection's bounds": "they bound rho, as the weights' do; verl's bound 1 / rho",
    "rollout_is of sequences": "min and max are of the weights in use; verl's, of the raw ratios",
    "rollout_corr, empty rows": "a row without a token is no sequence; verl counts it as one",
    "policy filtration, large scores": "weights stay finite; verl's power of 1e200 is infinite",
}

_KINDS = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "low_var_kl+")
_NEAR = ("k3", "k3+")
"""Ours equal verl's where its output clamp of 10 does not bind."""
_LEVELS = {"token": "token_k1", "sequence": "seq_sum_k1", "geometric": "seq_mean_k1"}


def compare_corrections(ledger: Ledger) -> None:
    """All of them."""
    for seed in range(NUM_SEEDS):
        compare_kl(ledger, draw(seed))
        compare_correction(ledger, draw(seed, spread=0.3))
        compare_rejection(ledger, draw(seed, spread=0.3))
        compare_empty_rows(ledger, draw(seed, spread=0.3, empty_rows=2))
        compare_filtration(ledger, draw(seed))
    compare_controllers(ledger)


def compare_kl(ledger: Ledger, drawn: Rollouts) -> None:
    """Every estimator in value and gradient; and as a penalty in the reward."""
    far = drawn.ref_logprobs.clone()
    far[:, :3] = drawn.logprobs[:, :3] + torch.tensor([2.6, 4.0, 25.0])
    far[:, 3] -= 25.0
    for ref, kinds in ((drawn.ref_logprobs, (*_KINDS, *_NEAR)), (far, _KINDS)):
        for kind in kinds:
            ours, theirs = both_kl(drawn, ref, kind)
            ledger.same(f"KL {kind}", ours[0], theirs[0])
            ledger.same(f"KL {kind}, gradient", ours[1], theirs[1])
    for kind in _NEAR:
        ours, theirs = both_kl(drawn, far, kind)
        ledger.deviates(kind, ours[0], theirs[0], undone=(ours[0].clamp(max=10), theirs[0]))
        is_within = ours[0] <= 10
        ledger.same(f"KL {kind}, gradient", ours[1] * is_within, theirs[1] * is_within)
    # Theirs wants numbers off the mask, where ours leaves what it finds.
    kl = our_kl.kl_penalty(drawn.old_logprobs, drawn.ref_logprobs, "k1")
    found = penalized(
        whole(drawn.token_rewards, drawn.mask).numpy(),
        whole(kl, drawn.mask).numpy(),
        whole_mask(drawn).numpy(),
        kl_coef=0.3,
    )
    wanted = compute_rewards(drawn.token_rewards, drawn.old_logprobs, drawn.ref_logprobs, 0.3)
    ledger.same("KL in the reward", on_response(found, drawn.mask), on_response(wanted, drawn.mask))


def both_kl(
    drawn: Rollouts, ref: Tensor, kind: str
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(values, gradient of their sum), ours and verl's."""
    found = []
    for estimate in (our_kl.kl_penalty, kl_penalty):
        at = drawn.logprobs.clone().requires_grad_()
        values = estimate(at, ref, kind)
        found.append((values.detach(), torch.autograd.grad(values.sum(), at)[0]))
    return found[0], found[1]


def compare_controllers(ledger: Ledger) -> None:
    """Fixed and adaptive coefficients over some batches."""
    kls = [(0.05, 64), (0.5, 256), (0.11, 1000), (0.0, 10), (3.0, 2000), (0.099, 10_000)]
    for kind in ("fixed", "adaptive"):
        settings: dict[str, Any] = {
            "type": kind,
            "kl_coef": 0.02,
            "horizon": 10_000,
            "target_kl": 0.1,
        }
        theirs = get_kl_controller(KLControlConfig(**settings))
        ours = make_kl_controller(KlCtrlConfig(**settings))
        for kl, num_sequences in kls:
            theirs.update(kl, num_sequences)
            ours = ours.after(kl, num_sequences=num_sequences)
            ledger.same(f"KL controller, {kind}", ours.kl_coef, theirs.value)
    fresh = make_kl_controller(KlCtrlConfig(**settings))
    theirs = get_kl_controller(KLControlConfig(**settings))
    theirs.update(0.0, 60_000)
    at_horizon = get_kl_controller(KLControlConfig(**settings))
    at_horizon.update(0.0, 10_000)
    found = fresh.after(0.0, num_sequences=60_000).kl_coef
    ledger.deviates(
        "adaptive KL, huge batch", found, theirs.value, undone=(found, at_horizon.value)
    )
    theirs.update(math.nan, 10)
    ledger.deviates(
        "adaptive KL, NaN",
        fresh.after(math.nan, num_sequences=10).kl_coef,
        theirs.value,
        undone=(fresh.kl_coef, get_kl_controller(KLControlConfig(**settings)).value),
    )


def compare_correction(ledger: Ledger, drawn: Rollouts) -> None:
    """Importance weights, truncated (TIS) and masked (MIS, IcePop), with their metrics."""
    for level in ("token", "sequence"):
        for threshold in (1.3, 2.0, 5.0):
            for normalize in (False, True):
                ours = our_correction(
                    drawn, weigh_by=level, threshold=threshold, normalize=normalize
                )
                theirs = verl_correction(
                    drawn,
                    rollout_is=level,
                    rollout_is_threshold=threshold,
                    rollout_is_batch_normalize=normalize,
                )
                ledger.same(f"TIS by {level}", on_response(ours.weights, drawn.mask), theirs[0])
                same_metrics(ledger, level, threshold, ours.metrics, theirs[2])
        for low, high in ((0.5, 2.0), (0.8, 1.5)):
            ours = our_correction(
                drawn, weigh_by=level, threshold=high, reject_by=level, bounds=(low, high)
            )
            theirs = verl_correction(drawn, rollout_is=level, rollout_is_threshold=f"{low}_{high}")
            ledger.same(f"MIS by {level}", on_response(ours.weights, drawn.mask), theirs[0])


def same_metrics(
    ledger: Ledger,
    level: str,
    threshold: float,
    ours: dict[str, float],
    theirs: dict[str, float],
) -> None:
    """Every metric that both log, by its name."""
    apart = ("rollout_corr/rollout_is_min", "rollout_corr/rollout_is_max")
    shared = sorted(ours.keys() & theirs.keys())
    alike = [name for name in shared if level == "token" or name not in apart]
    a, b = [ours[name] for name in alike], [theirs[name] for name in alike]
    assert len(alike) > 20, "both log the figures of the mismatch and of the weights"
    ledger.same(f"metrics of TIS by {level}", a, b)
    if level == "sequence":
        found, raw = ([metrics[name] for name in apart] for metrics in (ours, theirs))
        truncated = [min(value, threshold) for value in raw]
        if raw == truncated:
            ledger.same("rollout_is_min and _max of sequences", found, raw)
        else:
            ledger.deviates("rollout_is of sequences", found, raw, undone=(found, truncated))


def compare_rejection(ledger: Ledger, drawn: Rollouts) -> None:
    """Tokens and sequences out of bounds, which ours takes of rho and verl of 1 / rho."""
    for level, option in _LEVELS.items():
        for low, high in ((0.5, 2.0), (0.8, 1.25), (0.7, 1.1)):
            ours = our_correction(drawn, reject_by=level, bounds=(low, high))
            turned = verl_correction(
                drawn, rollout_rs=option, rollout_rs_threshold=f"{1 / high!r}_{1 / low!r}"
            )
            what = f"rejection by {level}"
            ledger.same(what, on_response((ours.weights != 0).double(), drawn.mask), turned[1])
            for name in ("rollout_rs_masked_fraction", "rollout_rs_seq_masked_fraction"):
                key = f"rollout_corr/{name}"
                ledger.same(f"{what}, {name}", ours.metrics[key], turned[2][key])
    theirs = verl_correction(drawn, rollout_rs="token_k1", rollout_rs_threshold="0.7_1.1")
    ours = our_correction(drawn, reject_by="token", bounds=(0.7, 1.1))
    turned = verl_correction(
        drawn, rollout_rs="token_k1", rollout_rs_threshold=f"{1 / 1.1!r}_{1 / 0.7!r}"
    )
    found = on_response((ours.weights != 0).double(), drawn.mask)
    ledger.deviates("rejection's bounds", found, theirs[1], undone=(found, turned[1]))


def compare_empty_rows(ledger: Ledger, drawn: Rollouts) -> None:
    """Rows without a token: the weights agree, the metrics once verl is not shown those rows."""
    options: dict[str, Any] = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    ours = our_correction(drawn, weigh_by="token", threshold=2.0)
    theirs = verl_correction(drawn, **options)
    left = verl_correction(drawn.rows(drawn.mask.sum(-1).numpy() > 0), **options)
    ledger.same("TIS, empty rows", on_response(ours.weights, drawn.mask), theirs[0])
    shared = sorted(ours.metrics.keys() & theirs[2].keys())
    found, counted, without = (
        [metrics[name] for name in shared] for metrics in (ours.metrics, theirs[2], left[2])
    )
    ledger.deviates("rollout_corr, empty rows", found, counted, undone=(found, without))


def our_correction(drawn: Rollouts, **options: Any) -> Correction:
    """Ours, of whole sequences with NaN off the mask."""
    return rollout_correction(
        whole(drawn.logprobs, drawn.mask),
        whole(drawn.old_logprobs, drawn.mask),
        whole_mask(drawn),
        **options,
    )


def verl_correction(
    drawn: Rollouts, **options: Any
) -> tuple[Tensor | None, Tensor, dict[str, float]]:
    """(weights, mask, metrics) of verl, the learner's log-probs against the generator's."""
    weights, mask, metrics = compute_rollout_correction_and_rejection_mask(
        drawn.logprobs, drawn.old_logprobs, drawn.mask, **options
    )
    return None if weights is None else weights.batch["rollout_is_weights"], mask, metrics


def compare_filtration(ledger: Ledger, drawn: Rollouts) -> None:
    """The chances by which PF-PPO draws a batch again."""
    for method in ("pow", "max_min", "max_random"):
        for power in (1.0, 2.0):
            for scores in (drawn.outcomes, drawn.outcomes.round(), 0 * drawn.outcomes):
                found = filtration_weights(scores.tolist(), method, power=power)
                ledger.same(f"PF-PPO {method}", found, verl_chances(scores, method, power))
    large = drawn.outcomes.clone()
    large[0] = 1e200
    found = filtration_weights(large.tolist(), "pow", power=2.0)
    only = torch.zeros_like(large)
    only[0] = 1.0
    ledger.deviates(
        "policy filtration, large scores",
        found,
        verl_chances(large, "pow", 2.0),
        undone=(found, verl_chances(only, "pow", 2.0)),
    )


def verl_chances(scores: Tensor, method: str, power: float) -> Tensor:
    """The weights that verl's resampling hands to ``torch.multinomial``, adding up to 1."""
    seen: list[Tensor] = []

    def multinomial(weights: Tensor, count: int, replacement: bool) -> Tensor:
        assert replacement, "with replacement"
        seen.append(weights)
        return torch.arange(count)

    data = DataProto.from_dict(tensors={"token_level_scores": scores[:, None]})
    with patch("torch.multinomial", multinomial):
        compute_pf_ppo_reweight_data(data, reweight_method=method, weight_pow=power)
    return seen[0] / seen[0].sum()
