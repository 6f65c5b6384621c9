"""Run one reward over many rollouts: the boundary where a failure becomes data."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from rlgym_llm.inject import sample_columns
from rlgym_llm.rewards import RawScore, Reward, RewardContext
from rlgym_llm.types import Rollout, RolloutGroup, Score, ScoreStatus

__all__ = ["score_rollouts"]

_MAX_ERROR_CHARS = 500


def score_rollouts(
    reward: Reward, rollouts: Sequence[Rollout], ctx: RewardContext, *, name: str | None = None
) -> list[Score]:
    """One score per rollout, in order, whatever the reward does.

    A reward that raises, or returns NaN, infinity or no number, gives ``value=None``, status
    ``error`` and an error naming it and the rollout; the others are scored all the same. None
    gives ``not_applicable``. KeyboardInterrupt passes. A reward of scope ``group`` sees the
    rollouts given here that share a group id, wherever they stand, and is called once for each
    group. ``name`` is what the scores are called; the reward's own name by default.
    """
    name = name or reward.name
    if reward.scope == "group":
        return _score_groups(name, reward, rollouts, ctx)
    if type(reward).score_batch is not Reward.score_batch:
        return _score_many(
            name, reward, rollouts, functools.partial(reward.score_batch, rollouts, ctx)
        )
    return [_score_one(name, reward, rollout, ctx) for rollout in rollouts]


def _score_groups(
    name: str, reward: Reward, rollouts: Sequence[Rollout], ctx: RewardContext
) -> list[Score]:
    places: dict[str, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        places.setdefault(rollout.group_id, []).append(index)
    scores: dict[int, Score] = {}
    for group_id, indices in places.items():
        siblings = tuple(rollouts[index] for index in indices)
        group = RolloutGroup(group_id=group_id, task=siblings[0].task, rollouts=siblings)
        call = functools.partial(reward.score_group, group, ctx)
        found = _score_many(name, reward, siblings, call)
        scores.update(zip(indices, found, strict=True))
    return [scores[index] for index in range(len(rollouts))]


def _score_many(
    name: str,
    reward: Reward,
    rollouts: Sequence[Rollout],
    call: Callable[[], Sequence[RawScore]],
) -> list[Score]:
    start = time.perf_counter()
    error = None
    values: Sequence[Any] = ()
    try:
        for rollout in rollouts:
            _check_needs(reward, rollout)
        values = list(call())
        if len(values) != len(rollouts):
            error = f"returned {len(values)} scores for {len(rollouts)} rollouts"
    except (Exception, SystemExit) as failure:  # a reward that calls sys.exit has failed too
        error = _describe(failure)
    seconds = (time.perf_counter() - start) / max(len(rollouts), 1)
    if error is not None:
        return [_failed(name, rollout, error, seconds) for rollout in rollouts]
    return [
        _read(name, reward, rollout, value, seconds)
        for rollout, value in zip(rollouts, values, strict=True)
    ]


def _score_one(name: str, reward: Reward, rollout: Rollout, ctx: RewardContext) -> Score:
    start = time.perf_counter()
    try:
        _check_needs(reward, rollout)
        value = reward.score(rollout, ctx)
    except (Exception, SystemExit) as failure:  # a reward that calls sys.exit has failed too
        return _failed(name, rollout, _describe(failure), time.perf_counter() - start)
    return _read(name, reward, rollout, value, time.perf_counter() - start)


def _read(name: str, reward: Reward, rollout: Rollout, value: Any, seconds: float) -> Score:
    """The `Score` of whatever a reward returned."""
    if reward.timeout_s is not None and seconds > reward.timeout_s:
        error = f"took {seconds:.3g} s of its {reward.timeout_s:g} s"
        return _failed(name, rollout, error, seconds, ScoreStatus.TIMEOUT)
    if isinstance(value, Score):
        words = value.error
        if value.status in (ScoreStatus.ERROR, ScoreStatus.TIMEOUT):
            words = _message(name, rollout, words or value.status)
        return Score(
            name=name,
            value=value.value,
            status=value.status,
            steps=value.steps,
            info=value.info,
            error=words,
            seconds=seconds,
        )
    if value is None:
        return Score(name=name, value=None, status=ScoreStatus.NOT_APPLICABLE, seconds=seconds)
    try:
        number = _to_float(value)
    except (TypeError, ValueError, OverflowError) as failure:
        return _failed(name, rollout, _describe(failure), seconds)
    return Score(name=name, value=number, seconds=seconds)


def _to_float(value: Any) -> float:
    if not isinstance(value, Real) and hasattr(value, "item"):
        value = value.item()  # array scalars; an array of several raises ValueError here
    if not isinstance(value, Real):
        kind = type(value).__name__
        raise TypeError(f"returned a {kind}; a reward returns a float, a bool, a Score or None")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"returned {number}; a reward is finite, or None")
    return number


def _check_needs(reward: Reward, rollout: Rollout) -> None:
    for need in reward.needs:
        if need == "answer" and rollout.task.answer is not None:
            continue  # the usual need, without making every column
        columns = sample_columns(rollout)
        if need not in columns:
            raise LookupError(
                f"needs the column {need!r}, which the task lacks "
                f"(available: {', '.join(sorted(columns))})"
            )


def _describe(failure: BaseException) -> str:
    try:
        text = " ".join(str(failure).split())
    except Exception:
        text = "(its message cannot be read)"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def _message(name: str, rollout: Rollout, error: str) -> str:
    if len(error) > _MAX_ERROR_CHARS:
        error = error[: _MAX_ERROR_CHARS - 3] + "..."
    return f"reward {name!r} on rollout {rollout.id!r}: {error}"


def _failed(
    name: str,
    rollout: Rollout,
    error: str,
    seconds: float,
    status: ScoreStatus = ScoreStatus.ERROR,
) -> Score:
    message = _message(name, rollout, error)
    return Score(name=name, value=None, status=status, error=message, seconds=seconds)
