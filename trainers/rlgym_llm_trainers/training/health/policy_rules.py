"""Health of the update: does the policy move, and not too far."""

from __future__ import annotations

import math
from statistics import fmean, median, pstdev

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History, Row

__all__ = [
    "clip_fraction",
    "dead_gradient",
    "kl_flat",
    "kl_spike",
    "loss_swings",
    "policy_still",
    "skipped_steps",
]

_CLIPPED, _MOVED, _NORM = "actor/pg_clipfrac", "actor/ppo_kl", "actor/grad_norm"
_LOWEST, _HIGHEST = "critic/advantages/min", "critic/advantages/max"
_VIOLENT, _USELESS = 0.3, 0.8
"""Clip fractions: up to the first the update is comfortable, above the second all but void."""
_SPIKES = {_MOVED: 0.02, "actor/kl": 0.1, "actor/reward_kl_penalty": 0.1}
"""KL divergences, and what each may reach whatever it was before, in nats a token."""
_FAR = 0.1
"""KL of one batch's updates, in nats a token, that is too much as an average."""


def clip_fraction(history: History, config: TrainConfig) -> Finding | None:
    """More than 30% of the tokens leave the clip range within one batch."""
    clipped = history.mean(_CLIPPED)
    if clipped is None or clipped <= _VIOLENT:
        return None
    age = history.mean("training/off_policy/trajectory_staleness/mean") or 0.0
    cause = "almost nothing is learned" if clipped > _USELESS else "the update is too violent"
    if age > 0 and config.algorithm.rollout_correction.bypass_mode:
        cause += f": samples are {age:.2g} updates old and the ratio begins at their policy"
        keys: tuple[str, ...] = ("rollout.max_staleness",)
    else:
        cause += ": steps too large, or too many on one batch"
        keys = ("actor.optim.lr", "actor.ppo_epochs", "actor.ppo_mini_batch_size")
    return Finding(
        rule="clip_fraction",
        seen=f"{clipped:.0%} of the tokens are clipped, where 5% to 30% is comfortable",
        cause=cause,
        keys=keys,
    )


def policy_still(history: History, config: TrainConfig) -> Finding | None:
    """Neither KL nor clipping within a batch, over several optimizer steps: the policy stands.

    One optimizer step a batch forces both to 0, so such steps say nothing. Those of a learning
    rate under a tenth of the highest (warm-up, the end of a schedule) are left out too.
    """
    highest = config.actor.optim.lr
    moving = [
        row
        for row in history.rows
        if _updates(row, config) > 1 and (row.get("actor/lr") or 0.0) >= 0.1 * highest
    ]
    if not moving or moving[-1] is not history.latest:
        return None
    windows = History(moving, history.window).windows(_MOVED, _CLIPPED)
    if not windows or any(abs(kl) >= 1e-5 or clipped >= 1e-3 for kl, clipped in windows[0]):
        return None
    flat = history.mean("frac_reward_zero_std")
    keys: tuple[str, ...] = ("actor.optim.lr", "actor.clip_ratio")
    cause = f"the learning rate {highest:g} is too small, or the clip is too tight"
    if flat is not None and flat > 0.9:
        cause, keys = "rewards are all equal within their groups", ("reward", "rollout.n")
    kl, clipped = (fmean(column) for column in zip(*windows[0], strict=True))
    return Finding(
        rule="policy_still",
        seen=f"ppo_kl {kl:.1g} and pg_clipfrac {clipped:.1g} over several optimizer steps a batch",
        cause=f"the policy does not move: {cause}",
        keys=keys,
    )


def kl_spike(history: History, config: TrainConfig) -> Finding | None:
    """A KL divergence is suddenly ten times what it was, or that within a batch stays too large.

    A jump counts above 0.02 nats a token within a batch and above 0.1 to the reference policy;
    within a batch an average above 0.1 is too much without any jump.
    """
    seen = None
    for key, bound in _SPIKES.items():
        recent = history.recent(key)
        usual = median(map(abs, recent[:-1])) if recent else math.inf
        if recent and recent[-1] > max(10 * usual, bound):
            seen = f"{key} {recent[-1]:.2g}, before {usual:.2g}"
            break
    far = history.mean(_MOVED)
    if seen is None and far is not None and far > _FAR:
        seen = f"{_MOVED} {far:.2g} on average"
    if seen is None:
        return None
    return Finding(
        rule="kl_spike",
        seen=seen,
        cause="one update has moved the policy too far",
        keys=("actor.optim.lr", "actor.ppo_epochs", "actor.grad_clip", "actor.kl_loss_coef"),
    )


def kl_flat(history: History, config: TrainConfig) -> Finding | None:
    """The KL to the reference stays 0 while gradients flow: the reference moves along.

    Nought is 1e-6 where the estimator is linear (k1, abs) and 1e-10 where it is a square (k2, k3).
    """
    for key, kind in (
        ("actor/kl", config.actor.kl_loss_type),
        ("actor/reward_kl_penalty", config.algorithm.kl_penalty),
    ):
        windows = history.windows(key, _NORM, "actor/lr")
        nought = 1e-6 if kind in ("kl", "k1", "abs") else 1e-10
        if windows and all(abs(kl) < nought and norm > 0 and lr > 0 for kl, norm, lr in windows[0]):
            return Finding(
                rule="kl_flat",
                seen=f"{key} stays 0 while gradients of norm {windows[0][-1][1]:.2g} are followed",
                cause="the reference policy moves along, or updates round to nothing",
                keys=("actor.optim.lr", "model.dtype"),
            )
    return None


def dead_gradient(history: History, config: TrainConfig) -> Finding | None:
    """No gradient although there are advantages."""
    windows = history.windows(_NORM, _LOWEST, _HIGHEST)
    if not windows or any(norm >= 1e-7 or low == high for norm, low, high in windows[0]):
        return None
    clipped = history.mean(_CLIPPED)
    cause = "the loss does not reach the weights: masked, rejected or frozen"
    if clipped is not None and clipped > 0.9:
        cause = "every ratio is clipped"
    return Finding(
        rule="dead_gradient",
        severity="error",
        seen=f"gradient norm {fmean(norm for norm, *_ in windows[0]):.1g} beside advantages of "
        f"up to {windows[0][-1][2]:.2g}",
        cause=cause,
        keys=("actor.policy_loss", "algorithm.rollout_correction.rollout_rs", "model.dtype"),
    )


def skipped_steps(history: History, config: TrainConfig) -> Finding | None:
    """An optimizer step was skipped, since its gradient was not finite; at once."""
    skipped = history.latest.get("actor/skipped_ratio")
    if not skipped:
        return None
    return Finding(
        rule="skipped_steps",
        severity="error" if skipped == 1 else "warning",
        seen=f"{skipped:.0%} of the step's updates were skipped",
        cause="their gradient was not finite",
        keys=("actor.optim.lr", "model.dtype"),
    )


def loss_swings(history: History, config: TrainConfig) -> Finding | None:
    """The policy loss swings from step to step by more than a fifth of the largest advantages."""
    windows = history.windows("actor/pg_loss", _LOWEST, _HIGHEST)
    if not windows:
        return None
    losses = [loss for loss, *_ in windows[0]]
    advantage = fmean((high - low) / 2 for _, low, high in windows[0])
    if advantage == 0 or pstdev(losses) <= 0.2 * advantage:
        return None
    return Finding(
        rule="loss_swings",
        seen=f"pg_loss swings by {pstdev(losses):.2g} beside advantages of {advantage:.2g}",
        cause="advantages are noisy: a small batch, or a reward that is seldom earned",
        keys=("data.train_batch_size", "rollout.n", "reward"),
    )


def _updates(row: Row, config: TrainConfig) -> int:
    """Optimizer steps of a step, by the groups that were left to train on."""
    groups = config.data.train_batch_size - int(row.get("num_dropped_groups") or 0)
    mini_batch = config.actor.ppo_mini_batch_size or config.data.train_batch_size
    return config.actor.ppo_epochs * math.ceil(groups / mini_batch)
