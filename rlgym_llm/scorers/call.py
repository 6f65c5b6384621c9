"""How the rollouts of one submission are shared out into calls of a reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rlgym_llm.rewards import FunctionReward, Reward, RewardContext
from rlgym_llm.scores import Score
from rlgym_llm.types import Rollout

__all__ = [
    "SETUP_HINT",
    "BoundReward",
    "Call",
    "Pending",
    "in_order",
    "is_batched",
    "setup_seconds",
    "split_calls",
    "split_rows",
]

Pending = Callable[[], list[Score]]
"""Waits for what was submitted: one score per rollout, in order. Called once."""

SETUP_HINT = "; what takes longer to load needs a longer timeout_s"
_SETUP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReward:
    """A reward under the name and the deadline that it has here."""

    reward: Reward
    name: str
    """What its scores and errors call it."""
    timeout_s: float | None
    """Seconds for one rollout, or for one call of scope ``group`` or ``batch``."""
    passes: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
    """Failures that are left to the caller; all others become scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one call of a reward sees: a rollout, a group, or a batch of rollouts."""

    places: tuple[int, ...]
    """Where these rollouts stand in the submission."""
    rollouts: tuple[Rollout, ...]
    ctx: RewardContext
    """Its ``components`` are those of these rollouts."""


def setup_seconds(timeout_s: float | None) -> float | None:
    """How long a reward with that deadline may take to set up; None for no bound.

    >>> setup_seconds(3.0), setup_seconds(300.0), setup_seconds(None)
    (60.0, 300.0, None)
    """
    return None if timeout_s is None else max(timeout_s, _SETUP_S)


def is_batched(reward: Reward) -> bool:
    """Whether rollouts that have nothing to do with each other go into one ``score_batch``."""
    own = type(reward).score_batch
    return reward.scope == "sample" and own not in (Reward.score_batch, FunctionReward.score_batch)


def split_calls(
    reward: Reward, rollouts: Sequence[Rollout], ctx: RewardContext, *, most_rows: int | None = None
) -> list[Call]:
    """The calls that score all rollouts, by the reward's scope; a group's rollouts may lie apart.

    ``most_rows`` bounds a ``score_batch`` of scope ``sample``. Rollouts of the groups a, b, a:

    >>> from rlgym_llm.types import Task
    >>> class Best(Reward):
    ...     name, scope = "best", "group"
    >>> rollouts = [Rollout(id=str(i), task=Task(prompt="?"), group_id=group, sample_index=0,
    ...                     seed=0, turns=()) for i, group in enumerate("aba")]
    >>> [call.places for call in split_calls(Best(), rollouts, RewardContext())]
    [(0, 2), (1,)]
    """
    if reward.scope == "group":
        groups: dict[str, list[int]] = {}
        for index, rollout in enumerate(rollouts):
            groups.setdefault(rollout.group_id, []).append(index)
        places: Iterable[Sequence[int]] = groups.values()
    elif reward.scope == "batch" or is_batched(reward):
        size = len(rollouts) if reward.scope == "batch" or most_rows is None else most_rows
        starts = range(0, len(rollouts), size or 1)
        places = [range(start, min(start + size, len(rollouts))) for start in starts]
    else:
        places = [(index,) for index in range(len(rollouts))]
    return [
        Call(
            places=tuple(some),
            rollouts=tuple(rollouts[index] for index in some),
            ctx=_at(ctx, some),
        )
        for some in places
    ]


def split_rows(call: Call) -> list[Call]:
    """One call per rollout."""
    return [
        Call(places=(place,), rollouts=(rollout,), ctx=_at(call.ctx, (index,)))
        for index, (place, rollout) in enumerate(zip(call.places, call.rollouts, strict=True))
    ]


def in_order(found: Iterable[tuple[Call, Sequence[Score]]]) -> list[Score]:
    """The scores of all calls in the order of the rollouts."""
    calls = list(found)
    if len(calls) == 1:  # whose places are all there are, in order
        return list(calls[0][1])
    scores = {
        place: score
        for call, scores in calls
        for place, score in zip(call.places, scores, strict=True)
    }
    return [scores[place] for place in range(len(scores))]


def _at(ctx: RewardContext, places: Sequence[int]) -> RewardContext:
    if not ctx.components:
        return ctx
    components = {
        name: tuple(values[place] for place in places) for name, values in ctx.components.items()
    }
    return dataclasses.replace(ctx, components=components)
