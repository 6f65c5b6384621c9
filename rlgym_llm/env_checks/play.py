"""Plays an environment by a script, for the checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlgym_llm.env import TextEnv
from rlgym_llm.types import Action

__all__ = ["GARBAGE", "SEED", "UNICODE", "Script", "Step", "gold", "most_turns", "play", "play_on"]

SEED = 7
GARBAGE = "colourless green ideas sleep furiously"
UNICODE = "naïve π≤4 中文 \u202e‮😀\x00\r\n\u2028 #### ٣"
_MOST_TURNS = 50

Step = tuple[Any, float, bool, bool, dict[str, Any]]
Script = Callable[[TextEnv], str | Action | None]
"""The next action, None to stop."""


def gold(env: TextEnv) -> str | Action | None:
    """The environment's own best action, None where it does not know one."""
    known = getattr(env, "gold_action", None)
    return known(env.task) if known is not None else None


def most_turns(env: TextEnv) -> int:
    """So many turns an episode is played for: the environment's own bound, or 50."""
    return _MOST_TURNS if env.max_turns is None else env.max_turns


def play(env: TextEnv, index: int, script: Script) -> list[Step]:
    """The steps of one episode of task ``index``, to its end or the script's."""
    env.reset(seed=SEED, options={"index": index})
    return play_on(env, script)


def play_on(env: TextEnv, script: Script, *, num_turns: int | None = None) -> list[Step]:
    """The steps from where the episode stands; at most so many."""
    steps: list[Step] = []
    most = most_turns(env) if num_turns is None else num_turns
    while len(steps) < most and not (steps and (steps[-1][2] or steps[-1][3])):
        action = script(env)
        if action is None:
            break
        steps.append(env.step(action))
    return steps
