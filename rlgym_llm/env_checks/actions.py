"""What reset and step take, and what they say."""

from __future__ import annotations

from gymnasium.error import ResetNeeded

from rlgym_llm.env import TextEnv
from rlgym_llm.env_checks.play import GARBAGE, SEED, UNICODE
from rlgym_llm.errors import UserError
from rlgym_llm.types import Action, FinishReason

__all__ = ["check_actions", "check_reset"]


def check_reset(env: TextEnv, name: str) -> None:
    """The seed fixes the draws, and unknown options are refused."""
    assert _draws(env, 5) == _draws(env, 5), f"{name}: reset(seed=5) twice gives other tasks"
    for options in ({"no_such_option": 1}, {"index": len(env.tasks)}):
        try:
            env.reset(options=options)
        except UserError:
            continue
        raise AssertionError(f"{name}: reset(options={options}) is accepted in silence")


def _draws(env: TextEnv, seed: int) -> list[str]:
    first = env.reset(seed=seed)[1]["task_id"]
    return [first, *(env.reset()[1]["task_id"] for _ in range(3))]


def check_actions(env: TextEnv, name: str, index: int) -> None:
    """Any text is taken, what comes back has Python's types, and the end is the end."""
    where = f"{name}, task {index}"
    for text in (UNICODE, "", GARBAGE):
        env.reset(seed=SEED, options={"index": index})
        observation, reward, terminated, truncated, info = env.step(text)
        assert observation in env.observation_space, f"{where}: observation is not in its space"
        types = (type(reward), type(terminated), type(truncated), type(info))
        assert types == (float, bool, bool, dict), f"{where}: step returns types {types}"
        assert not (terminated and truncated), f"{where}: terminated and truncated at once"
        if terminated or truncated:
            try:
                env.step(text)
            except ResetNeeded:
                continue
            raise AssertionError(f"{where}: stepping after the end is accepted in silence")
    env.reset(seed=SEED, options={"index": index})
    cut = Action(text="cut o", finish_reason=FinishReason.LENGTH)
    _, _, terminated, truncated, _ = env.step(cut)
    assert (terminated, truncated) == (False, True), (
        f"{where}: a completion cut by its budget must truncate, got {terminated=} {truncated=}"
    )
