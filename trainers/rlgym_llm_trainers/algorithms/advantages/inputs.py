"""What an advantage estimator is given and what it gives back: plain arrays, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rlgym_llm_trainers.algorithms.metrics import Metric

__all__ = ["AdvantageInputs", "Advantages", "Bools", "Floats"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdvantageInputs:
    """What is known of N rollouts when their advantages are estimated, streams [N, T].

    Streams span whole sequences, prompt and observations included; what stands at t speaks of
    token t. What stands off the mask or in an unscored row is never read: it may be NaN.

    Raises ValueError for shapes that differ, and for numbers that count and are not finite.

    >>> inputs = AdvantageInputs(
    ...     token_rewards=np.array([[0, 0, 0.25, 1.0]]), mask=np.array([[0, 0, 1, 1]], dtype=bool),
    ...     group_ids=("g",), is_scored=np.array([True]))
    >>> inputs.sequence_rewards.tolist()
    [1.25]
    """

    token_rewards: Floats  # [N, T]
    """Outcome on the last sampled token, process rewards where steps end, minus kl_coef * KL."""
    mask: Bools  # [N, T]
    """True on the tokens that the policy sampled."""
    group_ids: Sequence[str]
    """The group of each rollout: siblings are found by it, never by their position."""
    is_scored: Bools  # [N]
    """False where a rollout has no reward: it leaves statistics, loss and denominators."""
    rewards: Floats | None = None  # [N]
    """The reward of the whole sequence; None where it is the sum of its tokens."""
    step_ends: Bools | None = None  # [N, T]
    """Tokens on which a step ends; None where those with a reward are meant."""
    values: Floats | None = None  # [N, T]
    """The critic's value of the state in which token t was sampled."""
    bootstrap_values: Floats | None = None  # [N]
    """Its value of the state after a truncation; 0 where the episode ended by itself."""
    baselines: Floats | None = None  # [N]
    """The reward of the greedy sibling; NaN where it has none."""
    component_rewards: Mapping[str, Floats] = field(default_factory=dict)  # name -> [N]
    """Every component by itself, unweighted; NaN where it does not apply."""
    component_weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.token_rewards.ndim != 2:
            raise ValueError(f"token_rewards must be [N, T], got {self.token_rewards.shape}")
        if len(self.group_ids) != self.num_rollouts:
            raise ValueError(f"{self.num_rollouts} rollouts but {len(self.group_ids)} group ids")
        shape = self.token_rewards.shape
        for name in ("mask", "step_ends", "values"):
            _check_shape(name, getattr(self, name), shape)
        for name in ("is_scored", "rewards", "bootstrap_values", "baselines"):
            _check_shape(name, getattr(self, name), shape[:1])
        for name, values in self.component_rewards.items():
            _check_shape(f"component {name!r}", values, shape[:1])
            _check_finite(f"component {name!r}", values, self.is_scored & ~np.isnan(values))
            if name not in self.component_weights:
                raise ValueError(f"component {name!r} has no weight")
        trained = self.mask & self.is_scored[:, None]
        _check_finite("token_rewards", self.token_rewards, trained)
        _check_finite("values", self.values, trained)
        _check_finite("rewards", self.rewards, self.is_scored)
        _check_finite("bootstrap_values", self.bootstrap_values, self.is_scored)

    @classmethod
    def of_rewards(
        cls, rewards: Sequence[float | None], group_ids: Sequence[str]
    ) -> AdvantageInputs:
        """Rollouts of one sampled token each, for what compares rewards alone; None is unscored.

        >>> AdvantageInputs.of_rewards([1.0, None], ["a", "a"]).token_rewards.tolist()
        [[1.0], [0.0]]
        """
        is_scored = np.array([reward is not None for reward in rewards], dtype=bool)
        given = [0.0 if reward is None else float(reward) for reward in rewards]
        return cls(
            token_rewards=np.array(given, dtype=np.float64).reshape(-1, 1),
            mask=np.ones((len(given), 1), dtype=bool),
            group_ids=tuple(group_ids),
            is_scored=is_scored,
        )

    @property
    def num_rollouts(self) -> int:
        """N."""
        return len(self.token_rewards)

    @property
    def sequence_rewards(self) -> Floats:
        """The reward of each rollout [N], KL penalty included; 0 where it is unscored."""
        if self.rewards is not None:
            return np.where(self.is_scored, self.rewards, 0.0)
        sums = [
            # Exactly rounded: siblings that earned the same in other steps stay equal.
            math.fsum(row[is_sampled].tolist()) if is_scored else 0.0
            for row, is_sampled, is_scored in zip(
                self.token_rewards, self.mask, self.is_scored, strict=True
            )
        ]
        return np.array(sums, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advantages:
    """One advantage a sampled token, in the order of the rollouts given."""

    advantages: Floats  # [N, T]
    """Exactly 0 off the mask and where not valid."""
    is_valid: Bools  # [N]
    """False for rollouts that must leave the loss and its denominators."""
    returns: Floats | None = None  # [N, T]
    """What a critic is trained towards, never whitened; None where there is no critic."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @classmethod
    def broadcast(
        cls,
        inputs: AdvantageInputs,
        values: Floats,
        is_valid: Bools,
        metrics: Mapping[str, Metric] | None = None,
    ) -> Advantages:
        """One value a rollout [N], the same on each of its sampled tokens."""
        spread = np.broadcast_to(values[:, None], inputs.mask.shape)
        return cls.on_tokens(inputs, spread, is_valid, metrics)

    @classmethod
    def on_tokens(
        cls,
        inputs: AdvantageInputs,
        values: Floats,
        is_valid: Bools,
        metrics: Mapping[str, Metric] | None = None,
    ) -> Advantages:
        """The values [N, T] where they count, 0 elsewhere, and how many rollouts were left out."""
        kept = inputs.mask & is_valid[:, None]
        return cls(
            advantages=np.where(kept, values, 0.0),
            is_valid=is_valid,
            metrics={
                "num_unscored": Metric.sum(int((~inputs.is_scored).sum())),
                "num_dropped": Metric.sum(int((~is_valid).sum())),
                **(metrics or {}),
            },
        )

    def with_returns(self, returns: Floats) -> Advantages:
        """The same with ``returns`` [N, T]."""
        return replace(self, returns=returns)


def _check_shape(name: str, values: NDArray[np.generic] | None, shape: tuple[int, ...]) -> None:
    if values is not None and values.shape != shape:
        raise ValueError(f"{name} must be {list(shape)}, got {list(values.shape)}")


def _check_finite(name: str, values: Floats | None, counts: Bools) -> None:
    if values is None:
        return
    bad = np.argwhere(counts & ~np.isfinite(values))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(f"{name} of rollout {place[0]} holds {values[place]}; it must be finite")
