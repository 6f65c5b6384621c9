"""Reward ``length``: how long the rollout is; give it a negative weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout

__all__ = ["Length"]


@dataclass(frozen=True, kw_only=True)
class Length(Reward):
    """``n``, the number of sampled units: 0 or more, without a bound.

    Linear: with weight -0.001 each token costs 0.001. Tokens count the end-of-text token, for it
    was sampled; text without token ids (scored from a file, say) is an error under ``tokens``.
    """

    name = "length"
    range = (0.0, math.inf)

    unit: Literal["tokens", "chars", "turns"] = "tokens"
    """What is counted."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> float:
        """The number of units."""
        if self.unit == "turns":
            return float(rollout.num_turns)
        if self.unit == "chars":
            return float(len(rollout.text))
        for turn in rollout.turns:
            if turn.completion.text and not turn.completion.token_ids:
                raise ValueError("the completion carries no token ids; use unit: chars")
        return float(rollout.num_tokens)
