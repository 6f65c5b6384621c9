"""Episodes and scores that failed: how many a run bears."""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm.errors import RlgymError
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.types import Rollout, RolloutStatus

__all__ = ["check_failures", "check_scores"]


def check_failures(rollouts: Sequence[Rollout], *, step: int, max_error_rate: float) -> None:
    """Raises RlgymError where more of a step's episodes failed than the share allows, or all."""
    failed = [rollout for rollout in rollouts if rollout.status is not RolloutStatus.OK]
    if failed and (len(failed) > max_error_rate * len(rollouts) or len(failed) == len(rollouts)):
        raise RlgymError(
            f"step {step}: {len(failed)} of {len(rollouts)} episodes failed, more than "
            f"max_error_rate {max_error_rate:g} allows; for example: {failed[0].error}"
        )


def check_scores(cards: Sequence[ScoreCard], *, step: int) -> None:
    """Raises RlgymError where not a single reward of the step worked."""
    failed = [card for card in cards if card.status is CardStatus.FAILED_REWARD]
    if failed and len(failed) == len(cards):
        raise RlgymError(f"step {step}: not one of {len(cards)} scores worked: {failed[0].error}")
