"""Why there is nothing to learn from a rollout, by cause."""

from __future__ import annotations

from typing import Literal

from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.types import Rollout, RolloutStatus

__all__ = ["FAILURES", "Failure", "failure_of"]

Failure = Literal["environment", "generator", "reward", "tool", "timeout"]

FAILURES: tuple[Failure, ...] = ("environment", "generator", "reward", "tool", "timeout")

_CAUSES: dict[RolloutStatus, Failure] = {
    RolloutStatus.ENVIRONMENT_ERROR: "environment",
    RolloutStatus.GENERATOR_ERROR: "generator",
    RolloutStatus.TOOL_ERROR: "tool",
    RolloutStatus.TIMEOUT: "timeout",
}


def failure_of(rollout: Rollout, card: ScoreCard | None = None) -> Failure | None:
    """Who failed: the episode by its status, else a reward by the card; None where nobody did.

    An answer that is wrong, cut or not scored on purpose is no failure.

    >>> from rlgym_llm import Rollout, RolloutStatus, Task
    >>> failure_of(Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0,
    ...                    turns=(), status=RolloutStatus.TIMEOUT, error="Echo.step: ..."))
    'timeout'
    """
    if rollout.status is not RolloutStatus.OK:
        return _CAUSES[rollout.status]
    if card is not None and card.status is CardStatus.FAILED_REWARD:
        return "reward"
    return None
