"""Reward ``verifiers``: one named reward or metric of a verifiers environment."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlgym_llm.errors import ConfigError, did_you_mean
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout
from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

__all__ = ["VerifiersReward"]


@dataclass(frozen=True, kw_only=True)
class VerifiersReward(Reward):
    """What verifiers scores a rollout under the name ``signal``, before its weight there.

    The rollout's turns are played again in the environment, once for all signals of a rollout, so
    the environment must answer equal turns equally; the task must be one of `VerifiersEnv`'s. It
    does not apply where the episode was cut short, for verifiers then scores nothing.
    """

    name = "verifiers"
    range = (-math.inf, math.inf)

    env: str
    """Id of an installed taskset."""
    signal: str
    """Name of a reward or a metric of its tasks."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """As in `VerifiersEnv`."""
    agent: str | None = None
    """The seat that the policy took, where there are several."""
    draws_globally: bool = False
    """As in `VerifiersEnv`."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> float | None:
        """The signal's score, or None. Raises ConfigError where there is no such signal."""
        source = json.dumps([self.env, self.kwargs, self.agent, self.draws_globally])
        texts = tuple(turn.completion.text for turn in rollout.turns)
        data = json.dumps(dict(rollout.task.info), sort_keys=True)
        scores = _scores(source, rollout.task.id, data, texts, _Whole(rollout))
        if scores is None:
            return None
        if self.signal not in scores:
            hint = did_you_mean(self.signal, scores)
            raise ConfigError(
                f"verifiers/{self.env} has no reward or metric {self.signal!r}{hint} "
                f"(there are: {', '.join(scores)})"
            )
        return scores[self.signal]


class _Whole:
    """A rollout that stays out of a cache's key: all that matters of it is in the key."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=8)
def _environment(source: str) -> VerifiersEnv:
    env, kwargs, agent, draws_globally = json.loads(source)
    return VerifiersEnv(
        env=env,
        kwargs=kwargs,
        agent=agent,
        draws_globally=draws_globally,
        num_tasks=1,
        defer_scoring=True,
    )


@functools.lru_cache(maxsize=256)
def _scores(
    source: str, task_id: str, data: str, texts: tuple[str, ...], whole: _Whole
) -> Mapping[str, float] | None:
    """The scores by name of the turns, played again; None where they do not end the episode."""
    env = _environment(source).fresh()
    try:
        env.reset(options={"task": whole.rollout.task})
        for number, text in enumerate(texts, start=1):
            *_, terminated, _, info = env.step(text)
            if terminated:
                if number < len(texts):
                    return None
                named = info["verifiers"]
                rewards = {name: one["score"] for name, one in named["rewards"].items()}
                return {**named["metrics"], **rewards}
        return None
    finally:
        env.close()
