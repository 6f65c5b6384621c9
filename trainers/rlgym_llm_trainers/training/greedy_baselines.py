"""What the greedy siblings of a step earned, for the estimators that take it off."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlgym_llm.compose import RewardComposer
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.algorithms.metrics import summary

__all__ = ["greedy_baselines"]


def greedy_baselines(
    greedy: Mapping[str, Rollout], composer: RewardComposer, *, step: int
) -> tuple[dict[str, float], dict[str, float]]:
    """(reward of the greedy sibling by group id, metrics ``critic/baselines/*``).

    NaN where that sibling has none, or failed: its group then trains nothing.
    """
    cards = composer(list(greedy.values()), step=step) if greedy else []
    rewards = {
        group_id: math.nan if card.reward is None else card.reward
        for group_id, card in zip(greedy, cards, strict=True)
    }
    return rewards, summary("critic/baselines", [card.reward for card in cards])
