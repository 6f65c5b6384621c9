"""Run one reward over many rollouts: the boundary where a failure becomes data."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

from rlgym_llm.errors import RewardError
from rlgym_llm.inject import sample_columns
from rlgym_llm.rewards import RawScore, Reward, RewardContext
from rlgym_llm.scorer_call import (
    BoundReward,
    Call,
    in_order,
    is_batched,
    split_calls,
    split_rows,
)
from rlgym_llm.types import Rollout, RolloutGroup, Score, ScoreStatus
from rlgym_llm.unchecked import unchecked

__all__ = [
    "check_needs",
    "close_reward",
    "describe",
    "failed_score",
    "failed_scores",
    "read_score",
    "score_call",
    "score_rollouts",
    "setup_reward",
]

_MAX_ERROR_CHARS = 500
_score = unchecked(Score)  # of values that are checked here, or were where the reward made them


def score_rollouts(
    reward: Reward,
    rollouts: Sequence[Rollout],
    ctx: RewardContext,
    *,
    name: str | None = None,
    timeout_s: float | None = None,
) -> list[Score]:
    """One score per rollout, in order, whatever the reward does; all in this thread.

    A reward that raises, or returns NaN, infinity or no number, gives ``value=None``, status
    ``error`` and an error naming it and the rollout; the others are scored all the same. None
    gives ``not_applicable``. KeyboardInterrupt passes. A reward of scope ``group`` sees the
    rollouts given here that share a group id, wherever they stand, and is called once for each
    group. ``name`` is what the scores are called; the reward's own name by default, as with
    ``timeout_s``.
    """
    if timeout_s is None:
        timeout_s = reward.timeout_s
    bound = BoundReward(reward=reward, name=name or reward.name, timeout_s=timeout_s)
    if reward.scope == "sample" and not is_batched(reward) and not ctx.components:
        return [_score_one(bound, rollout, ctx) for rollout in rollouts]  # no record for each
    calls = split_calls(reward, rollouts, ctx)
    return in_order((call, score_call(bound, call)) for call in calls)


def score_call(bound: BoundReward, call: Call) -> list[Score]:
    """One score for each rollout of one call; raises only what the bound reward lets pass.

    Where a ``score_batch`` of scope ``sample`` raises, its rollouts are scored one by one, so that
    it costs those that it cannot judge.
    """
    reward, rollouts = bound.reward, call.rollouts
    if reward.scope == "group":
        first = rollouts[0]
        group = RolloutGroup(group_id=first.group_id, task=first.task, rollouts=rollouts)
        return _score_many(bound, call, partial(reward.score_group, group, call.ctx))
    if reward.scope == "batch" or is_batched(reward):
        return _score_many(bound, call, partial(reward.score_batch, rollouts, call.ctx))
    return [_score_one(bound, rollout, call.ctx) for rollout in rollouts]


def _score_many(
    bound: BoundReward, call: Call, judge: Callable[[], Sequence[RawScore]]
) -> list[Score]:
    start = time.perf_counter()
    try:
        for rollout in call.rollouts:
            check_needs(bound.reward, rollout)
        values = list(judge())
    except bound.passes:
        raise
    except (Exception, SystemExit) as failure:  # a reward that calls sys.exit has failed too
        if bound.reward.scope == "sample" and len(call.rollouts) > 1:
            return [score for row in split_rows(call) for score in score_call(bound, row)]
        return failed_scores(bound, call, describe(failure), seconds=time.perf_counter() - start)
    total = time.perf_counter() - start
    if len(values) != len(call.rollouts):
        error = f"returned {len(values)} scores for {len(call.rollouts)} rollouts"
        return failed_scores(bound, call, error, seconds=total)
    mean = total / max(len(values), 1)
    taken = mean if bound.reward.scope == "sample" else total
    return [
        read_score(bound, rollout, value, mean, taken)
        for rollout, value in zip(call.rollouts, values, strict=True)
    ]


def _score_one(bound: BoundReward, rollout: Rollout, ctx: RewardContext) -> Score:
    reward = bound.reward
    start = time.perf_counter()
    try:
        if reward.needs:
            check_needs(reward, rollout)
        value = reward.score(rollout, ctx)
    except bound.passes:
        raise
    except (Exception, SystemExit) as failure:  # a reward that calls sys.exit has failed too
        return failed_score(bound, rollout, describe(failure), time.perf_counter() - start)
    seconds = time.perf_counter() - start
    return read_score(bound, rollout, value, seconds, seconds)


def read_score(
    bound: BoundReward, rollout: Rollout, value: Any, seconds: float, taken: float
) -> Score:
    """The `Score` of whatever a reward returned; ``taken`` is what its deadline is held against."""
    if bound.timeout_s is not None and taken > bound.timeout_s:
        error = f"took {taken:.3g} s of its {bound.timeout_s:g} s"
        return failed_score(bound, rollout, error, seconds, ScoreStatus.TIMEOUT)
    if type(value) is float and math.isfinite(value):
        return _score(bound.name, value, ScoreStatus.OK, (), {}, None, seconds)
    if value is None:
        status = ScoreStatus.NOT_APPLICABLE
        return Score(name=bound.name, value=None, status=status, seconds=seconds)
    if isinstance(value, Score):
        return _adopted(bound, rollout, value, seconds)
    try:
        number = _to_float(value)
    except (TypeError, ValueError, OverflowError) as failure:
        return failed_score(bound, rollout, describe(failure), seconds)
    return _score(bound.name, number, ScoreStatus.OK, (), {}, None, seconds)


def _adopted(bound: BoundReward, rollout: Rollout, score: Score, seconds: float) -> Score:
    """The reward's own `Score` under the name that it has here."""
    words = score.error
    if score.status in (ScoreStatus.ERROR, ScoreStatus.TIMEOUT):
        words = _message(bound, rollout, words or score.status)
    if score.steps:
        num_chars = len(rollout.text)
        for step in score.steps:
            if step.char_end > num_chars:
                span = f"[{step.char_start}, {step.char_end})"
                error = f"a step covers {span} of a text of {num_chars} characters"
                return failed_score(bound, rollout, error, seconds)
    return _score(bound.name, score.value, score.status, score.steps, score.info, words, seconds)


def _to_float(value: Any) -> float:
    if not isinstance(value, Real) and hasattr(value, "item"):
        value = value.item()  # array scalars; an array of several raises ValueError here
    if not isinstance(value, Real):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns, long after, that nobody awaited it
        kind = type(value).__name__
        raise TypeError(f"returned a {kind}; a reward returns a float, a bool, a Score or None")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"returned {number}; a reward is finite, or None")
    return number


def check_needs(reward: Reward, rollout: Rollout) -> None:
    """Raises LookupError where the rollout lacks a column without which the reward cannot judge."""
    for need in reward.needs:
        if need == "answer" and rollout.task.answer is not None:
            continue  # the usual need, without making every column
        columns = sample_columns(rollout)
        if need not in columns:
            raise LookupError(
                f"needs the column {need!r}, which the task lacks "
                f"(available: {', '.join(sorted(columns))})"
            )


def setup_reward(bound: BoundReward, ctx: RewardContext) -> None:
    """Sets the reward up; raises RewardError, which names it, whatever it raises."""
    try:
        bound.reward.setup(ctx)
    except (Exception, SystemExit) as failure:
        raise RewardError(
            f"reward {bound.name!r} failed in setup: {describe(failure)}"
        ) from failure


def close_reward(bound: BoundReward) -> None:
    """Closes the reward; raises RewardError, which names it, whatever it raises."""
    try:
        bound.reward.close()
    except (Exception, SystemExit) as failure:
        raise RewardError(
            f"reward {bound.name!r} failed in close: {describe(failure)}"
        ) from failure


def describe(failure: BaseException) -> str:
    """The failure on one line, whatever its own ``__str__`` does."""
    try:
        text = " ".join(str(failure).split())
    except Exception:
        text = "(its message cannot be read)"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


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
    message = _message(bound, rollout, error)
    return Score(name=bound.name, value=None, status=status, error=message, seconds=seconds)


def _message(bound: BoundReward, rollout: Rollout, error: str) -> str:
    if len(error) > _MAX_ERROR_CHARS:
        error = error[: _MAX_ERROR_CHARS - 3] + "..."
    return f"reward {bound.name!r} on rollout {rollout.id!r}: {error}"
