"""Reward ``env``: what the environment itself gave."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlgym_llm.rewards import Granularity, Reward, RewardContext
from rlgym_llm.scores import Score, StepScore
from rlgym_llm.types import Rollout

__all__ = ["Env"]


@dataclass(frozen=True, kw_only=True)
class Env(Reward):
    """``sum_t r_t`` over the turns that carry the environment's own reward; any real number.

    Rewards 1.0, none, 0.5 give 1.5. It does not apply where no turn carries one. ``Score.steps``
    are the rewards themselves, each with the characters of ``rollout.text`` that its turn covers,
    for the placement ``turn``.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turns = tuple(Turn(new_prompt_token_ids=(), completion=Completion(text=text),
    ...                    env_reward=r) for text, r in [("go", 1.0), ("hm", None), ("up", 0.5)])
    >>> rollout = Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0,
    ...                   turns=turns)
    >>> score = Env().score(rollout, RewardContext())
    >>> score.value, [(step.value, step.char_start, step.char_end) for step in score.steps]
    (1.5, [(1.0, 0, 2), (0.5, 6, 8)])
    """

    name = "env"
    is_bounded = True
    granularity: Granularity = "turn"
    range = (-math.inf, math.inf)

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score | None:
        """The undiscounted sum and the turns' shares in it, or None."""
        steps = []
        start = 0
        for turn in rollout.turns:
            end = start + len(turn.completion.text)
            if turn.env_reward is not None:
                steps.append(StepScore(value=turn.env_reward, char_start=start, char_end=end))
            start = end + 1  # rollout.text joins the turns by one newline
        if not steps:
            return None
        value = math.fsum(step.value for step in steps)
        return Score(name=self.name, value=value, steps=tuple(steps))
