"""The score of a rollout that could not be scored, and the words of what went wrong."""

from __future__ import annotations

from rlgym_llm.scorers.call import BoundReward, Call
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout

__all__ = ["describe", "error_text", "failed_score", "failed_scores", "one_line"]

_MAX_ERROR_CHARS = 500


def describe(failure: BaseException) -> str:
    r"""The failure on one line, whatever its own ``__str__`` does.

    >>> describe(ValueError("no number\nin 'abc'")), describe(AssertionError())
    ("ValueError: no number in 'abc'", 'AssertionError')
    """
    try:
        text = one_line(failure)
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "(its message cannot be read)"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def one_line(words: object) -> str:
    """The text of anything, on one line that any file takes; raises what its ``__str__`` does."""
    # Half a surrogate pair, which no encoding carries, is written as its escape.
    return " ".join(str(words).split()).encode("utf-8", "backslashreplace").decode()


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
