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
from gymnasium.utils.env_checker import check_env as check_gymnasium_env

from rlgym_llm.env import TextEnv
from rlgym_llm.env_checks.actions import check_actions, check_reset
from rlgym_llm.env_checks.determinism import check_copies, check_side_by_side
from rlgym_llm.env_checks.gold import check_gold, check_placement
from rlgym_llm.env_checks.vector import check_vector

__all__ = ["check_env"]


def check_env(env: gymnasium.Env[Any, Any], *, num_indices: int = 3) -> None:
    """Checks that an environment keeps the contract; raises AssertionError naming what it breaks.

    Gymnasium's own checker first (its warnings count as failures); then, on ``num_indices`` tasks:

    - the same index gives the same episode, now and in a pickled copy; a copy pickled or cloned in
      the middle of an episode, and `TextEnv.set_state`, go on alike;
    - episodes that take turns, run in threads, or in a vector under any autoreset mode, go as they
      go alone;
    - reset honours seed and options; any Unicode is taken; types are Python's own; terminated and
      truncated are apart; stepping after the end raises;
    - where `TextEnv.gold_action` knows the right actions, an episode of them earns the maximum
      (``gold_reward``, or what the rewards' ranges allow) and garbage earns less;
    - what the tokens earn adds up to the reward;
    - the global random generators are untouched.
    """
    text_env = env.unwrapped
    assert isinstance(text_env, TextEnv), f"{type(text_env).__name__} is no TextEnv"
    assert not text_env.defer_scoring, "check an environment that scores: defer_scoring=False"
    name = type(text_env).__name__
    num_indices = min(num_indices, len(text_env.tasks))
    with _global_random_untouched(name):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_gymnasium_env(text_env, skip_render_check=text_env.spec is None)
        check_reset(text_env, name)
        for index in range(num_indices):
            check_copies(text_env, name, index)
            check_actions(text_env, name, index)
            check_gold(text_env, name, index)
            check_placement(text_env, name, index)
        check_side_by_side(text_env, name, num_indices)
        check_vector(text_env, name)
    text_env.close()
    text_env.close()


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
