"""check_env: the contract of an environment, as a test that anyone may import."""

from __future__ import annotations

import pickle
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env as check_gymnasium_env

from rlgym_llm.env import TextEnv
from rlgym_llm.errors import UserError
from rlgym_llm.types import Action, FinishReason

__all__ = ["check_env"]

_UNICODE = "naïve π≤4 中文 \u202e‮😀\x00\r\n\u2028 #### ٣"
_GARBAGE = "colourless green ideas sleep furiously"


def check_env(env: gymnasium.Env[Any, Any], *, num_indices: int = 3) -> None:
    """Checks that an environment keeps the contract; raises AssertionError naming what it breaks.

    Gymnasium's own checker first (its warnings count as failures); then, on ``num_indices`` tasks:
    the same index gives the same episode, now and in a pickled copy, a copy made in the middle of
    an episode goes on alike; reset honours seed and options; any Unicode is taken; types are
    Python's own; terminated and truncated are apart; stepping after the end raises; the global
    random generators are untouched. Where the environment has ``gold_action(task) -> str``, the
    right answer scores above garbage.
    """
    text_env = env.unwrapped
    assert isinstance(text_env, TextEnv), f"{type(text_env).__name__} is no TextEnv"
    assert not text_env.defer_scoring, "check an environment that scores: defer_scoring=False"
    name = type(text_env).__name__
    with _global_random_untouched(name):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_gymnasium_env(text_env, skip_render_check=text_env.spec is None)
        _check_reset(text_env, name)
        for index in range(min(num_indices, len(text_env.tasks))):
            _check_determinism(text_env, name, index)
            _check_actions(text_env, name, index)
            _check_gold(text_env, name, index)
    text_env.close()
    text_env.close()


def _check_reset(env: TextEnv, name: str) -> None:
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


def _check_determinism(env: TextEnv, name: str, index: int) -> None:
    where = f"{name}, task {index}"
    options = {"index": index}
    first = env.reset(seed=7, options=options)
    assert first[1]["index"] == index, f"{where}: options index gave task {first[1]['index']}"
    copied = pickle.loads(pickle.dumps(env))
    step = env.step(_GARBAGE)
    assert copied.step(_GARBAGE) == step, f"{where}: a copy pickled in mid-episode steps otherwise"
    for one, what in ((env, "again"), (copied, "in a pickled copy")):
        assert one.reset(seed=7, options=options) == first, f"{where}: reset {what} differs"
        assert one.step(_GARBAGE) == step, f"{where}: step {what} differs"
    copied.close()


def _check_actions(env: TextEnv, name: str, index: int) -> None:
    where = f"{name}, task {index}"
    for text in (_UNICODE, ""):
        env.reset(seed=7, options={"index": index})
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
    env.reset(seed=7, options={"index": index})
    _, _, terminated, truncated, _ = env.step(
        Action(text="cut o", finish_reason=FinishReason.LENGTH)
    )
    assert (terminated, truncated) == (False, True), (
        f"{where}: a completion cut by its budget must truncate, got {terminated=} {truncated=}"
    )


def _check_gold(env: TextEnv, name: str, index: int) -> None:
    gold_action = getattr(env, "gold_action", None)
    if gold_action is None:
        return
    rewards = {}
    for what, text in (("gold", gold_action(env.tasks[index])), ("garbage", _GARBAGE)):
        env.reset(seed=7, options={"index": index})
        _, rewards[what], *_, info = env.step(text)
        card = info["score"]
        assert not info["unscored"], f"{name}, task {index}: {what} is unscored: {card}"
    assert rewards["gold"] > rewards["garbage"], (
        f"{name}, task {index}: gold scores {rewards['gold']}, garbage {rewards['garbage']}"
    )


@contextmanager
def _global_random_untouched(name: str) -> Iterator[None]:
    before = _global_random_state()
    yield
    assert _global_random_state() == before, (
        f"{name} draws from a global random generator; use self.np_random"
    )


def _global_random_state() -> tuple[Any, ...]:
    # The core does not import torch; where it is loaded, its generator counts too.
    torch = sys.modules.get("torch")
    return (
        random.getstate(),
        pickle.dumps(np.random.get_state()),
        None if torch is None else torch.random.get_rng_state().tolist(),
    )
