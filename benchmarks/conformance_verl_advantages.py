"""Advantage estimators beside those of verl's registry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from conformance_cases import NUM_SEEDS, PROMPT, Rollouts, draw, on_response, whole
from conformance_ledger import Ledger
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gae import gae
from rlgym_llm_trainers.algorithms.advantages.gdpo import gdpo
from rlgym_llm_trainers.algorithms.advantages.groups import dr_grpo, gpg, grpo, opo, rloo
from rlgym_llm_trainers.algorithms.advantages.reinforce import (
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    remax,
)
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

__all__ = ["ARGUMENTS", "compare_advantages"]

ARGUMENTS = {
    "group of one": "a lone sample has no baseline; verl takes its raw reward for an advantage",
    "grpo_vectorized": "verl takes mean and std in float32, ours are in float64",
    "equal rewards in float32": "equal rewards are worth exactly 0; verl divides a rounding by eps",
    "gpg": "the scale counts rollouts of groups that differ; verl's, rewards that are not 0",
    "gdpo": "whitened over rollouts as published; verl's over tokens, where long ones weigh more",
}

_PAIRS: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "grpo": (grpo, "grpo", {}),
    "dr_grpo": (dr_grpo, "grpo", {"norm_adv_by_std_in_grpo": False}),
    "rloo": (rloo, "rloo", {}),
    "opo": (opo, "opo", {}),
    "reinforce_plus_plus_baseline": (
        reinforce_plus_plus_baseline,
        "reinforce_plus_plus_baseline",
        {},
    ),
}
"""Estimators that compare siblings: ours, verl's name, verl's options."""


def compare_advantages(ledger: Ledger) -> None:
    """All estimators of ours that verl has too."""
    for seed in range(NUM_SEEDS):
        compare_temporal(ledger, draw(seed))
        compare_siblings(ledger, draw(seed))
        compare_siblings(ledger, draw(seed, empty_rows=2))
        compare_lone(ledger, draw(seed, (4, 1, 3, 1, 5)))
        compare_gpg(ledger, draw(seed))
        compare_gdpo(ledger, seed)
    compare_float32(ledger)


def compare_temporal(ledger: Ledger, drawn: Rollouts) -> None:
    """GAE, REINFORCE++ and ReMax: rewards on many tokens, and gaps between turns."""
    for gamma, lam in ((1.0, 1.0), (1.0, 0.95), (0.99, 0.9)):
        advantages, returns = get_adv_estimator_fn("gae")(
            drawn.token_rewards, drawn.values, drawn.mask, gamma, lam
        )
        found = gae(to_inputs(drawn, drawn.token_rewards), gamma=gamma, lam=lam)
        what = f"gae, gamma {gamma:g}, lam {lam:g}"
        ledger.same(what, found.advantages[:, PROMPT:], on_response(advantages, drawn.mask))
        ledger.same(
            f"{what}, returns",
            on_response(found.returns, drawn.mask),
            on_response(returns, drawn.mask),
        )
        theirs = verl("reinforce_plus_plus", drawn, drawn.token_rewards, config={"gamma": gamma})
        found = reinforce_plus_plus(to_inputs(drawn, drawn.token_rewards), gamma=gamma)
        ledger.same(f"reinforce_plus_plus, gamma {gamma:g}", found.advantages[:, PROMPT:], theirs)
    baselines = drawn.values[:, 0]
    theirs = verl("remax", drawn, drawn.token_rewards, reward_baselines=baselines)
    found = remax(to_inputs(drawn, drawn.token_rewards, baselines=baselines.numpy()))
    ledger.same("remax", found.advantages[:, PROMPT:], theirs)


def compare_siblings(ledger: Ledger, drawn: Rollouts) -> None:
    """What compares siblings: uneven groups in mixed order, one of them with equal rewards."""
    for name, (estimate, verl_name, options) in _PAIRS.items():
        for rewards in (drawn.outcome_rewards * drawn.mask, drawn.token_rewards):
            theirs = verl(verl_name, drawn, rewards, **options)
            ledger.same(name, ours(estimate, drawn, rewards), theirs)
    rewards = drawn.outcome_rewards * drawn.mask
    theirs = verl("rloo_vectorized", drawn, rewards)
    ledger.same("rloo_vectorized", ours(rloo, drawn, rewards), theirs)


def compare_lone(ledger: Ledger, drawn: Rollouts) -> None:
    """Groups of one: ours gives what verl gives once they are taken out of the batch."""
    _, place, counts = np.unique(drawn.group_ids, return_inverse=True, return_counts=True)
    others = drawn.rows(counts[place] > 1)
    for estimate, name, options in _PAIRS.values():
        found = ours(estimate, drawn, drawn.outcome_rewards)
        left = verl(name, others, others.outcome_rewards, **options)
        spread = torch.zeros_like(drawn.mask)
        spread[torch.from_numpy(counts[place] > 1)] = left
        theirs = verl(name, drawn, drawn.outcome_rewards, **options)
        ledger.deviates("group of one", found, theirs, undone=(found, spread))
    theirs = verl("rloo_vectorized", drawn, drawn.outcome_rewards)
    ledger.same("rloo_vectorized, groups of one", ours(rloo, drawn, drawn.outcome_rewards), theirs)


def compare_gpg(ledger: Ledger, drawn: Rollouts) -> None:
    """The same deviations from the mean, scaled by another count."""
    rewards = drawn.outcome_rewards
    found, theirs = ours(gpg, drawn, rewards), verl("gpg", drawn, rewards)
    pulling = (found != 0).any(-1).sum()
    nonzero = (drawn.outcomes != 0).sum()
    ledger.deviates("gpg", found, theirs, undone=(found * pulling, theirs * nonzero))
    # Where every group differs and no reward is 0 the two counts are the same.
    differing = drawn.rows(drawn.group_ids != "prompt 0")
    found = ours(gpg, differing, differing.outcome_rewards)
    theirs = verl("gpg", differing, differing.outcome_rewards)
    if bool((differing.outcomes != 0).all()):
        ledger.same("gpg, where every group differs", found, theirs)


def compare_gdpo(ledger: Ledger, seed: int) -> None:
    """Of rollouts of equal length, tokens and rollouts are whitened alike up to their number."""
    rng = np.random.default_rng(seed)
    weights, eps = (1.0, 0.25), 1e-9  # far below the 1e-8 that verl adds to a variance
    for equal_lengths in (True, False):
        drawn = draw(seed, equal_lengths=equal_lengths)
        # Multiples of 1/8, since verl reads components in float32.
        raws = np.round(8 * rng.normal(size=(2, len(drawn.mask)))) / 8
        raws[0, drawn.group_ids == "prompt 1"] = 0.25
        attention = torch.ones_like(drawn.mask).cumsum(-1) <= (
            drawn.mask * torch.arange(1, drawn.mask.shape[1] + 1)
        ).amax(-1, keepdim=True)
        attention = attention.long()
        prompts = torch.ones(len(raws[0]), 2, dtype=torch.long)
        theirs = verl(
            "gdpo",
            drawn,
            drawn.outcome_rewards,
            epsilon=eps,
            config={"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": list(weights)},
            non_tensor_batch={"a": raws[0], "b": raws[1]},
            batch={"prompts": prompts, "attention_mask": torch.cat([prompts, attention], dim=1)},
        )
        rewards = to_inputs(
            drawn,
            drawn.outcome_rewards,
            component_rewards={"a": raws[0], "b": raws[1]},
            component_weights=dict(zip("ab", weights, strict=True)),
        )
        estimated = gdpo(rewards, eps=eps)
        found = torch.from_numpy(estimated.advantages[:, PROMPT:])
        num, num_tokens = int(estimated.is_valid.sum()), float(drawn.mask.sum())
        by_tokens = found * math.sqrt(num / (num - 1) * (1 - 1 / num_tokens))
        moved = by_tokens if equal_lengths else rewhitened(found, drawn.mask)
        ledger.deviates("gdpo", found, theirs, undone=(moved, theirs))


def rewhitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """The advantages with mean 0 and unbiased variance 1 over their tokens."""
    kept = advantages[mask.bool()]
    return torch.where(mask.bool(), (advantages - kept.mean()) / kept.std(), 0.0)


def compare_float32(ledger: Ledger) -> None:
    """Statistics in float32: verl's of `grpo_vectorized` always, of `grpo` as it trains."""
    drawn = draw(0)
    eighths = Rollouts(**{**vars(drawn), "outcomes": (drawn.outcomes * 8).round() / 8})
    shifted = Rollouts(**{**vars(drawn), "outcomes": drawn.outcomes + 1000.1})
    exact = eighths.outcome_rewards  # float32 holds their sums
    ledger.deviates(
        "grpo_vectorized",
        ours(grpo, shifted, shifted.outcome_rewards),
        verl("grpo_vectorized", shifted, shifted.outcome_rewards),
        undone=(ours(grpo, eighths, exact), verl("grpo_vectorized", eighths, exact)),
    )
    drawn = draw(0, (8, 8))
    equal = Rollouts(**{**vars(drawn), "outcomes": torch.full_like(drawn.outcomes, 0.1)})
    found = ours(grpo, equal, equal.outcome_rewards)
    theirs = verl("grpo", equal, equal.outcome_rewards.float())
    in_float64 = verl("grpo", equal, equal.outcome_rewards)
    ledger.deviates("equal rewards in float32", found, theirs, undone=(found, in_float64))


def to_inputs(drawn: Rollouts, token_rewards: Tensor, **more: Any) -> AdvantageInputs:
    """Ours: a prompt before the response, and NaN wherever nothing was sampled."""
    mask = whole(drawn.mask, drawn.mask).nan_to_num() > 0
    return AdvantageInputs(
        token_rewards=whole(token_rewards, drawn.mask).numpy(),
        mask=mask.numpy(),
        group_ids=tuple(drawn.group_ids.tolist()),
        is_scored=np.ones(len(mask), dtype=bool),
        values=whole(drawn.values, drawn.mask).numpy(),
        **more,
    )


def ours(estimate: Callable[..., Any], drawn: Rollouts, token_rewards: Tensor) -> Tensor:
    """Our advantages on responses."""
    return torch.from_numpy(estimate(to_inputs(drawn, token_rewards)).advantages[:, PROMPT:])


def verl(
    name: str,
    drawn: Rollouts,
    token_rewards: Tensor,
    *,
    config: dict[str, Any] | None = None,
    **more: Any,
) -> Tensor:
    """Verl's advantages, on fresh copies: its functions may write into what they are given."""
    estimate = get_adv_estimator_fn(name)
    if name not in ("remax", "reinforce_plus_plus"):
        more["index"] = drawn.group_ids
    advantages, _ = estimate(
        token_level_rewards=token_rewards.clone(),
        response_mask=drawn.mask.clone(),
        config=AlgoConfig(**(config or {})),
        **more,
    )
    return on_response(advantages, drawn.mask).double()
