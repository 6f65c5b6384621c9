"""The inner end of backend ``process``: a reward, set up once, in a worker of a sandbox."""

from __future__ import annotations

import base64
import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlgym_llm.rewards import RewardContext
from rlgym_llm.score import close_reward, score_call
from rlgym_llm.scorers.call import BoundReward, Call
from rlgym_llm.scorers.source import load_reward
from rlgym_llm.scores import Score, StepScore
from rlgym_llm.types import Rollout

__all__ = ["Worker", "make_worker", "read_scores", "request", "worker_argument"]


def worker_argument(
    name: str, packed: Mapping[str, Any], ctx: RewardContext, timeout_s: float | None
) -> dict[str, Any]:
    """What `make_worker` is given, as JSON data."""
    return {
        "name": name,
        "reward": dict(packed),
        "evaluation": ctx.evaluation,
        "step": ctx.step,
        "timeout_s": timeout_s,
    }


def make_worker(argument: Mapping[str, Any], take: Callable[[], None]) -> Worker:
    """Builds the reward and sets it up; the factory that the sandbox calls as a worker starts."""
    reward, plugins = load_reward(argument["reward"])
    ctx = RewardContext(plugins=plugins, evaluation=argument["evaluation"], step=argument["step"])
    reward.setup(ctx)
    # After a MemoryError nothing in a process is sound: the sandbox ends it.
    bound = BoundReward(
        reward=reward,
        name=argument["name"],
        timeout_s=argument["timeout_s"],
        passes=(KeyboardInterrupt, MemoryError),
    )
    return Worker(bound, ctx, take)


class Worker:
    """A reward that answers a `request` with the scores of each of its calls."""

    def __init__(self, bound: BoundReward, ctx: RewardContext, take: Callable[[], None]) -> None:
        self._bound = bound
        self._ctx = ctx
        self._take = take

    def __call__(self, asked: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        """Scores the calls one after the other, each under a deadline of its own."""
        bound = dataclasses.replace(self._bound, name=asked["name"])
        ctx = dataclasses.replace(self._ctx, evaluation=asked["evaluation"], step=asked["step"])
        parts = pickle.loads(base64.b64decode(asked["calls"]))
        calls = [_call(rollouts, components, ctx) for rollouts, components in parts]
        answers = []
        for call in calls:
            self._take()
            answers.append([_encode(score) for score in score_call(bound, call)])
        self._take()  # what goes wrong from here on is no call's
        return answers

    def close(self) -> None:
        """Closes the reward; raises RewardError, which names it."""
        close_reward(self._bound)


def request(name: str, calls: Sequence[Call]) -> dict[str, Any]:
    """What a worker is sent. Raises what pickle does of columns that it cannot carry.

    Rollouts go as a pickle, in a fraction of the time that JSON takes for their log-probs. Scores
    come back as JSON: what a reward may have meddled with is not unpickled here.
    """
    ctx = calls[0].ctx
    parts = pickle.dumps([(call.rollouts, call.ctx.components) for call in calls])
    return {
        "name": name,
        "evaluation": ctx.evaluation,
        "step": ctx.step,
        "calls": base64.b64encode(parts).decode(),
    }


def _call(rollouts: tuple[Rollout, ...], components: Mapping[str, Any], ctx: RewardContext) -> Call:
    return Call(
        places=tuple(range(len(rollouts))),
        rollouts=rollouts,
        ctx=dataclasses.replace(ctx, components=components) if components else ctx,
    )


def _encode(score: Score) -> dict[str, Any]:
    return {
        "value": score.value,
        "status": score.status,
        "steps": [dataclasses.asdict(step) for step in score.steps],
        "info": score.info,
        "error": score.error,
        "seconds": score.seconds,
    }


def read_scores(name: str, answers: Sequence[Mapping[str, Any]]) -> list[Score]:
    """The scores of one call, out of a worker's answer."""
    return [
        Score(**{**answer, "name": name, "steps": tuple(StepScore(**s) for s in answer["steps"])})
        for answer in answers
    ]
