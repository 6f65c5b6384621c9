"""Health of the critic, where there is one: do its values explain the returns."""

from __future__ import annotations

from statistics import fmean

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History

__all__ = ["explained_variance", "value_drift", "value_loss"]

_EXPLAINED = "critic/vf_explained_var"


def explained_variance(history: History, config: TrainConfig) -> Finding | None:
    """The explained variance is undefined (returns all equal) or negative, over a window.

    ``1 - Var(return - value) / Var(return)``: near 1 is good, 0 is a critic that knows the mean.
    """
    measured = [row[_EXPLAINED] for row in history.rows[-history.window :] if _EXPLAINED in row]
    if len(measured) < history.window:
        return None
    found = [value for value in measured if value is not None]
    if not found:
        return Finding(
            rule="explained_variance",
            seen="explained variance is undefined",
            cause="returns do not vary: rewards are all equal",
            keys=("reward", "rollout.temperature"),
        )
    if fmean(found) >= 0:
        return None
    return Finding(
        rule="explained_variance",
        seen=f"explained variance {fmean(found):.2g}",
        cause="the critic is worse than the mean of the returns: it learns too slowly or too fast",
        keys=("critic.optim.lr", "trainer.critic_warmup"),
    )


def value_loss(history: History, config: TrainConfig) -> Finding | None:
    """The value loss, which should fall and settle, is twice what it once was.

    Against the lowest earlier window of the same reward weights.
    """
    windows = history.of_these_rewards().windows("critic/vf_loss")
    if len(windows) < 2:
        return None
    recent, *earlier = (fmean(loss for (loss,) in window) for window in windows)
    if not 0 < 2 * min(earlier) < recent:
        return None
    return Finding(
        rule="value_loss",
        seen=f"vf_loss {recent:.3g}, once {min(earlier):.3g}",
        cause="the critic does not follow the returns",
        keys=("critic.optim.lr", "critic.cliprange_value"),
    )


def value_drift(history: History, config: TrainConfig) -> Finding | None:
    """The mean value is outside of the returns it stands for."""
    value, lowest, highest = "critic/values/mean", "critic/returns/min", "critic/returns/max"
    means = history.averages(value, lowest, highest)
    if means is None or means[lowest] <= means[value] <= means[highest]:
        return None
    return Finding(
        rule="value_drift",
        seen=f"mean value {means[value]:.3g}, returns {means[lowest]:.3g} to {means[highest]:.3g}",
        cause="the scale of the returns moves and the critic does not follow",
        keys=("critic.optim.lr", "rewards.clip"),
    )
