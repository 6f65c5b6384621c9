"""Run one reward over many rollouts: the boundary where a failure becomes data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from rlgym_llm.errors import RewardError, describe, did_you_mean
from rlgym_llm.inject import sample_columns
from rlgym_llm.rewards import RawScore, Reward, RewardContext
from rlgym_llm.scorers.call import (
    BoundReward,
    Call,
    in_order,
    is_batched,
    split_calls,
    split_rows,
)
from rlgym_llm.scorers.failed_score import failed_score, failed_scores
from rlgym_llm.scorers.read_score import WrongListError, listed, read_score
from rlgym_llm.scores import Score
from rlgym_llm.types import Rollout, RolloutGroup

__all__ = [
    "check_needs",
    "close_reward",
    "score_call",
    "score_rollouts",
    "setup_reward",
]


def score_rollouts(
    reward: Reward,
    rollouts: Sequence[Rollout],
    ctx: RewardContext,
    *,
    name: str | None = None,
    timeout_s: float | None = None,
) -> list[Score]:
    """One score per rollout, in order, whatever the reward does; all in this thread.

    A reward that raises anything, or returns NaN, infinity or no number, gives ``value=None``,
    status ``error`` and an error naming it and the rollout; the others are scored all the same.
    None gives ``not_applicable``. KeyboardInterrupt alone passes. A reward of scope ``group`` sees
    the rollouts given here that share a group id, wherever they stand, and is called once for each
    group. ``name`` is what the scores are called; the reward's own name by default, as with
    ``timeout_s``.
    """
    if timeout_s is None:
        timeout_s = reward.timeout_s
    bound = BoundReward(reward=reward, name=name or reward.name, timeout_s=timeout_s)
    return score_bound(bound, rollouts, ctx)


def score_bound(bound: BoundReward, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[Score]:
    """As `score_rollouts`, of a reward that has its name and deadline."""
    reward = bound.reward
    if reward.scope == "sample" and not ctx.components:
        if not is_batched(reward):
            return [_score_one(bound, rollout, ctx) for rollout in rollouts]  # no record for each
        if len(rollouts) == 1:
            return score_call(bound, Call(places=(0,), rollouts=tuple(rollouts), ctx=ctx))
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
        check_needs(bound.reward, call.rollouts)
        values = listed(judge(), len(call.rollouts))
    except bound.passes:
        raise
    except WrongListError as wrong:  # in which no rollout is worse than another
        return failed_scores(bound, call, str(wrong), seconds=time.perf_counter() - start)
    except BaseException as failure:  # a reward that calls sys.exit has failed too
        if bound.reward.scope == "sample" and len(call.rollouts) > 1:
            return [score for row in split_rows(call) for score in score_call(bound, row)]
        return failed_scores(bound, call, describe(failure), seconds=time.perf_counter() - start)
    total = time.perf_counter() - start
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
            check_needs(reward, [rollout])
        value = reward.score(rollout, ctx)
    except bound.passes:
        raise
    except BaseException as failure:  # a reward that calls sys.exit has failed too
        return failed_score(bound, rollout, describe(failure), time.perf_counter() - start)
    seconds = time.perf_counter() - start
    return read_score(bound, rollout, value, seconds, seconds)


def check_needs(reward: Reward, rollouts: Sequence[Rollout]) -> None:
    """Raises LookupError where one lacks a column without which the reward cannot judge."""
    for need in reward.needs:
        for rollout in rollouts:
            if need == "answer" and rollout.task.answer is not None:
                continue  # the usual need, without making every column
            columns = sample_columns(rollout)
            if need not in columns:
                raise LookupError(
                    f"needs the column {need!r}, which the task lacks{did_you_mean(need, columns)} "
                    f"(available: {', '.join(sorted(columns))})"
                )


def setup_reward(bound: BoundReward, ctx: RewardContext) -> None:
    """Sets the reward up; raises RewardError, which names it, whatever it raises."""
    try:
        bound.reward.setup(ctx)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        raise RewardError(
            f"reward {bound.name!r} failed in setup: {describe(failure)}"
        ) from failure


def close_reward(bound: BoundReward) -> None:
    """Closes the reward; raises RewardError, which names it, whatever it raises."""
    try:
        bound.reward.close()
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        raise RewardError(
            f"reward {bound.name!r} failed in close: {describe(failure)}"
        ) from failure
