"""The score of a rollout that could not be scored."""

from __future__ import annotations

from rlgym_llm.scorers.call import BoundReward, Call
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout

__all__ = ["error_text", "failed_score", "failed_scores"]

_MAX_ERROR_CHARS = 500


def failed_scores(
    bound: BoundReward,
    call: Call,
    error: str,
    *,
    seconds: float = 0.0,
    status: ScoreStatus = ScoreStatus.ERROR,
) -> list[Score]:
    """The scores of a call that failed as a whole; the time is shared out."""
    share = seconds / max(len(call.rollouts), 1)
    return [failed_score(bound, rollout, error, share, status) for rollout in call.rollouts]


def failed_score(
    bound: BoundReward,
    rollout: Rollout,
    error: str,
    seconds: float = 0.0,
    status: ScoreStatus = ScoreStatus.ERROR,
) -> Score:
    """The score of a rollout that could not be scored; its error names reward and rollout."""
    message = error_text(bound, rollout, error)
    return Score(name=bound.name, value=None, status=status, error=message, seconds=seconds)


def error_text(bound: BoundReward, rollout: Rollout, error: str) -> str:
    """The error with the reward and the rollout that it is of; an endless one is cut."""
    if len(error) > _MAX_ERROR_CHARS:
        error = error[: _MAX_ERROR_CHARS - 3] + "..."
    return f"reward {bound.name!r} on rollout {rollout.id!r}: {error}"
