"""Health of the rewards: do they still rise, do siblings differ, does one drown the others."""

from __future__ import annotations

import math
from statistics import fmean, pvariance

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History, reward_weights

__all__ = [
    "component_scale",
    "noise_rewards",
    "reward_drop",
    "reward_spread",
    "zero_variance_groups",
]

_REWARD, _SPREAD, _FLAT = "critic/rewards/mean", "group_reward_std", "frac_reward_zero_std"
_LOWEST, _HIGHEST = "critic/rewards/min", "critic/rewards/max"
_NOISE = 0.02
"""Spread of siblings, as a part of the largest reward, under which it is noise."""
_DROWNED = 10
"""So many times the spread of another component drowns it."""
_FEW_SIBLINGS = 4
_ONCE = 0.2
"""Part of the way from the lowest reward to the highest that a policy was once above."""
_GREEDY_ENTROPY = 0.05
"""Nats a token, under which sampling is as good as greedy."""


def reward_drop(history: History, config: TrainConfig) -> Finding | None:
    """The mean reward is far below what it once was.

    By more than half the spread of siblings and by four standard errors of the difference, against
    the best earlier window of the same reward weights; never under a curriculum. Where siblings are
    not compared, a quarter of the range of the rewards stands for their spread.
    """
    windows = history.of_these_rewards().windows(_REWARD, *_spread_keys(history))
    if len(windows) < 2:
        return None
    recent = [reward for reward, *_ in windows[0]]
    best = max(windows[1:], key=lambda window: fmean(reward for reward, *_ in window))
    earlier = [reward for reward, *_ in best]
    spread = fmean(rest[0] if len(rest) == 1 else (rest[1] - rest[0]) / 4 for _, *rest in best)
    fall = fmean(earlier) - fmean(recent)
    error = math.sqrt((pvariance(earlier) + pvariance(recent)) / len(recent))
    is_rounding = fall <= 1e-9 * abs(fmean(earlier))
    if is_rounding or fall < 0.5 * spread or fall < 4 * error:
        return None
    return Finding(
        rule="reward_drop",
        seen=f"mean reward {fmean(recent):.3g}, down from {fmean(earlier):.3g}",
        cause="the policy has got worse: steps too large, or too far from where it began",
        keys=("actor.optim.lr", "actor.use_kl_loss", "actor.ppo_epochs"),
    )


def reward_spread(history: History, config: TrainConfig) -> Finding | None:
    """The spread of rewards among siblings has collapsed without success, or has exploded.

    To a quarter while the mean has not risen by half the former spread, or to ten times: the newest
    window against the oldest of the same reward weights; never under a curriculum.
    """
    windows = history.of_these_rewards().windows(_REWARD, _SPREAD)
    if len(windows) < 2:
        return None
    old, new = (_columns_mean(windows[place]) for place in (-1, 0))
    (old_reward, old_spread), (new_reward, new_spread) = old, new
    seen = f"siblings differ by {new_spread:.3g} in reward, once by {old_spread:.3g}"
    if new_spread < old_spread / 4 and new_reward - old_reward < old_spread / 2:
        return Finding(
            rule="reward_spread",
            seen=f"{seen}, and the mean has not risen ({old_reward:.3g} to {new_reward:.3g})",
            cause="the policy has settled on one answer that is no better",
            keys=("actor.entropy_coeff", "actor.optim.lr", "rollout.temperature"),
        )
    if 0 < 10 * old_spread < new_spread:
        return Finding(
            rule="reward_spread",
            seen=seen,
            cause="the scale of the reward grows: a score without bounds, perhaps gamed",
            keys=("rewards.clip", "actor.use_kl_loss"),
        )
    return None


def noise_rewards(history: History, config: TrainConfig) -> Finding | None:
    """Siblings differ by next to nothing, and the division by their std makes it an advantage.

    Rewards .61, .60, .62, .61 have a std of .008 and advantages of up to 1.2. Fires where the
    std, over the groups that have one, is under 2% of the largest reward.
    """
    if not config.algorithm.norm_adv_by_std_in_grpo or config.algorithm.adv_estimator not in (
        "grpo",
        "grpo_step",
    ):
        return None
    means = history.averages(_SPREAD, _FLAT, _LOWEST, _HIGHEST)
    if means is None or means[_FLAT] == 1:
        return None
    spread = means[_SPREAD] / (1 - means[_FLAT])
    scale = max(abs(means[_LOWEST]), abs(means[_HIGHEST]))
    if spread >= _NOISE * scale:
        return None
    return Finding(
        rule="noise_rewards",
        seen=f"siblings differ by {spread:.2g} in rewards of up to {scale:.3g}",
        cause="their std is divided by, so noise counts as much as right and wrong would",
        keys=("algorithm.norm_adv_by_std_in_grpo", "reward"),
    )


def zero_variance_groups(history: History, config: TrainConfig) -> Finding | None:
    """Too many groups have equal rewards: they train nothing and cost as much as the others.

    The mean reward, within all rewards seen so far, tells whether the tasks are too easy (above
    90% of the way up), too hard (below 10%), or whether the siblings are too alike or too few. An
    error where nothing is earned that once was: such a run does not come back.
    """
    flat, mean = history.mean(_FLAT), history.mean(_REWARD)
    if flat is None or mean is None or flat <= config.trainer.health.max_zero_variance:
        return None
    lowest = min(v for row in history.rows if (v := row.get(_LOWEST)) is not None)
    highest = max(v for row in history.rows if (v := row.get(_HIGHEST)) is not None)
    where = (mean - lowest) / (highest - lowest) if highest > lowest else None
    entropy = history.mean("actor/entropy")
    tasks = ("data.curriculum.type", "data.train")
    has_fallen = where is not None and where < 0.1 and _once_was_higher(history, lowest, highest)
    if has_fallen:
        cause = "the policy earns nothing any more: steps too large, or too far from where it began"
        keys: tuple[str, ...] = ("actor.optim.lr", "actor.use_kl_loss", "actor.ppo_epochs")
    elif where is None:
        cause = "no reward differs from another: the tasks are too hard or too easy, or the "
        cause += "rewards look at nothing that varies"
        keys = ("reward", *tasks)
    elif where > 0.9:
        cause, keys = "the tasks are too easy", tasks
    elif where < 0.1:
        cause, keys = "the tasks are too hard", (*tasks, "rollout.n")
    elif entropy is not None and entropy < _GREEDY_ENTROPY:
        cause = f"the temperature is too low: siblings are alike (entropy {entropy:.2g} a token)"
        keys = ("rollout.temperature", "actor.entropy_coeff")
    elif config.rollout.n <= _FEW_SIBLINGS:
        cause, keys = f"{config.rollout.n} siblings are too few to differ", ("rollout.n",)
    else:
        cause = "each task is either solved or hopeless"
        keys = (*tasks, "algorithm.filter_groups.enable", "rollout.temperature", "rollout.n")
    return Finding(
        rule="zero_variance_groups",
        severity="error" if has_fallen and flat == 1 else "warning",
        seen=f"{flat:.0%} of the groups have equal rewards, mean {mean:.3g} "
        f"within {lowest:.3g} to {highest:.3g}",
        cause=cause,
        keys=keys,
    )


def _once_was_higher(history: History, lowest: float, highest: float) -> bool:
    """Whether the mean reward of an earlier step was above a fifth of the way up."""
    rows = history.of_these_rewards().rows[: -history.window]
    earlier = (value for row in rows if (value := row.get(_REWARD)) is not None)
    return max(earlier, default=lowest) - lowest > _ONCE * (highest - lowest)


def component_scale(history: History, config: TrainConfig) -> Finding | None:
    """A component that is weighted no higher than another spreads ten times as far.

    Spreads are ``|weight| * std`` of the raw score. Components that do not vary, or whose
    contribution is not weight times score (a gate, a transform), are left out; and all are where
    each is normalised by itself.
    """
    if config.rewards is not None and config.rewards.aggregate == "normalize_then_sum":
        return None
    spreads = {
        name: spread
        for name, weight in reward_weights(history.latest).items()
        if weight and (spread := _spread_of(history, name))
    }
    if not spreads:
        return None
    weights = {name: abs(reward_weights(history.latest)[name]) for name in spreads}
    loud = max(spreads, key=lambda name: spreads[name])
    for name, spread in spreads.items():
        if weights[name] >= weights[loud] and _DROWNED * spread < spreads[loud]:
            return Finding(
                rule="component_scale",
                seen=f"{loud!r} varies by {spreads[loud]:.3g} after its weight of "
                f"{weights[loud]:g}, {name!r} by {spread:.3g} after {weights[name]:g}",
                cause=f"{loud!r} drowns {name!r}: its raw scores are on another scale",
                keys=(f"rewards.components.{loud}.weight", "rewards.aggregate"),
            )
    return None


def _spread_of(history: History, name: str) -> float | None:
    keys = tuple(f"rewards/{name}/{part}" for part in ("weight", "mean", "std", "contribution"))
    means = history.of_these_rewards().averages(*keys)
    if means is None:
        return None
    weight, mean, std, contribution = (means[key] for key in keys)
    if not math.isclose(contribution, weight * mean, rel_tol=1e-6, abs_tol=1e-9):
        return None
    return abs(weight) * std


def _spread_keys(history: History) -> tuple[str, ...]:
    return (_SPREAD,) if history.latest.get(_SPREAD) is not None else (_LOWEST, _HIGHEST)


def _columns_mean(window: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(fmean(column) for column in zip(*window, strict=True))
