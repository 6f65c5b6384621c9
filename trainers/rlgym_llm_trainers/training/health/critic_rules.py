"""Health of the critic, where there is one: do its values explain the returns."""

from __future__ import annotations

from statistics import fmean

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History

__all__ = ["explained_variance", "value_drift", "value_loss"]

_EXPLAINED = "critic/vf_explained_var"

_WORSE_THAN_THE_MEAN = -0.1
"""Explained variance below which a critic is worse than the mean by more than noise."""
_DRIFT = 0.1
"""Share of the spread of the returns by which the mean value may be outside of them."""


def explained_variance(history: History, config: TrainConfig) -> Finding | None:
    """The explained variance is undefined (returns all equal) or clearly negative, over a window.

    A critic that begins knows nothing yet, so its first window is never called negative.
    ``1 - Var(return - value) / Var(return)``: near 1 is good, 0 is a critic that knows the mean.
    """
    rows, window = history.rows, history.window
    measured = [row[_EXPLAINED] for row in rows[-window:] if _EXPLAINED in row]
    if len(measured) < window:
        return None
    found = [value for value in measured if value is not None]
    if not found:
        return Finding(
            rule="explained_variance",
            seen="explained variance is undefined",
            cause="returns do not vary: rewards are all equal",
            keys=("reward", "rollout.temperature"),
        )
    is_new = sum(_EXPLAINED in row for row in rows) < 2 * window
    if is_new or fmean(found) >= _WORSE_THAN_THE_MEAN:
        return None
    return Finding(
        rule="explained_variance",
        seen=f"explained variance {fmean(found):.2g}",
        cause="the critic is worse than the mean of the returns: it learns too slowly or too fast",
        keys=("critic.optim.lr", "trainer.critic_warmup"),
    )


def value_loss(history: History, config: TrainConfig) -> Finding | None:
    """The value loss is twice what it once was, and the critic worse than the mean of the returns.

    Against the lowest earlier window of the same reward weights. The loss alone says little: it is
    in the square of the returns, and rises where the first of them differ. Steps whose returns are
    all equal do not count.
    """
    windows = history.of_these_rewards().windows("critic/vf_loss", _EXPLAINED)
    if len(windows) < 2:
        return None
    recent, *earlier = (fmean(loss for loss, _ in window) for window in windows)
    explained = fmean(share for _, share in windows[0])
    if not 0 < 2 * min(earlier) < recent or explained >= 0:
        return None
    return Finding(
        rule="value_loss",
        seen=f"vf_loss {recent:.3g}, once {min(earlier):.3g}; explained variance {explained:.2g}",
        cause="the critic does not follow the returns",
        keys=("critic.optim.lr", "critic.cliprange_value"),
    )


def value_drift(history: History, config: TrainConfig) -> Finding | None:
    """The mean value is outside of the returns it stands for, by a tenth of their spread.

    Returns that are all equal have no spread to compare with.
    """
    value, lowest, highest = "critic/values/mean", "critic/returns/min", "critic/returns/max"
    means = history.averages(value, lowest, highest)
    if means is None or means[lowest] == means[highest]:
        return None
    margin = _DRIFT * (means[highest] - means[lowest])
    if means[lowest] - margin <= means[value] <= means[highest] + margin:
        return None
    return Finding(
        rule="value_drift",
        seen=f"mean value {means[value]:.3g}, returns {means[lowest]:.3g} to {means[highest]:.3g}",
        cause="the scale of the returns moves and the critic does not follow",
        keys=("critic.optim.lr", "rewards.clip"),
    )
