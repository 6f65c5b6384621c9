"""Reward ``env``: what the environment itself gave."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout

__all__ = ["Env"]


@dataclass(frozen=True, kw_only=True)
class Env(Reward):
    """``sum_t r_t`` over the turns that carry the environment's own reward; any real number.

    Rewards 1.0, none, 0.5 give 1.5. It does not apply where no turn carries one.
    """

    name = "env"
    range = (-math.inf, math.inf)

    def score(self, rollout: Rollout, ctx: RewardContext) -> float | None:
        """The undiscounted sum, or None."""
        given = [turn.env_reward for turn in rollout.turns if turn.env_reward is not None]
        return math.fsum(given) if given else None
