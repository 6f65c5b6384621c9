"""Every registered environment keeps the contract, in this process and in others."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AsyncVectorEnv

from rlgym_llm import TextEnv, UserError, make
from rlgym_llm.check_env import check_env
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import register_envs
from rlgym_llm.vector_steps import info_of

SPECS = Plugins.discover().envs()

ADAPTERS = ("gem", "gymnasium-text", "reasoning-gym", "verifiers")
"""Those that play another package's environments, each with tests of its own."""

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "math-gsm8k": {"source": "starter", "num_problems": 5},
    "gsm8k-calculator": {"source": "starter", "num_problems": 5},
    "mixture": {"envs": {"arithmetic": 3.0, "countdown": 1.0}},
}
"""Arguments of environments that have no data of their own, or more than a test needs."""

ROWS: Mapping[str, list[dict[str, str]]] = {
    "math-generic": [
        {"prompt": "What is 1/2 + 1/3?", "answer": r"\boxed{\frac{5}{6}}"},
        {"prompt": "What is 2^5?", "answer": "32"},
    ],
    "text-match": [{"prompt": "Say yes.", "answer": "yes"}, {"prompt": "Say é.", "answer": "é"}],
}
"""Rows of a file ``data`` for environments that read one."""

GARBAGE = "colourless green ideas"


@pytest.fixture(params=sorted(SPECS.keys() - set(ADAPTERS)))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def maker(name: str, tmp_path: Path) -> Callable[..., gymnasium.Env[Any, Any]]:
    """Makes the environment by its module-prefixed id."""
    options = dict(OPTIONS.get(name, {}))
    if name in ROWS:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[name]))
        options["data"] = str(path)
    register_envs()
    return partial(gymnasium.make, f"rlgym_llm:{SPECS[name].id}", **options)


def test_it_passes_both_checkers(maker: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    check_env(maker())


def test_make_makes_the_same(name: str, maker: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    ours = make(name, **maker.keywords)  # type: ignore[attr-defined]
    assert ours.reset(seed=3) == maker().reset(seed=3)
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.step(GARBAGE) == ours.step(GARBAGE)


def test_in_this_process_and_in_another(maker: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    """A process that is spawned finds the environment by its id and plays the same episode."""
    here = maker()
    first = here.reset(seed=5)
    step = here.step(GARBAGE)
    vector = AsyncVectorEnv([maker], shared_memory=False, context="spawn")
    try:
        observations, infos = vector.reset(seed=5)
        assert (observations[0], info_of(infos, 0)) == first
        observations, rewards, terminated, truncated, infos = vector.step((GARBAGE,))
        found = (observations[0], rewards[0], terminated[0], truncated[0])
        assert found == step[:4]
        assert info_of(infos, 0)["task_id"] == step[4]["task_id"]
    finally:
        vector.close()


def test_shared_memory_is_refused(maker: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    with pytest.raises(UserError, match="shared_memory=False"):
        AsyncVectorEnv([maker], context="spawn")


def test_make_vec(name: str, maker: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    vector = gymnasium.make_vec(
        SPECS[name].id,
        num_envs=2,
        vectorization_mode="sync",
        **maker.keywords,  # type: ignore[attr-defined]
    )
    observations, _ = vector.reset(seed=1)
    assert observations in vector.observation_space
    assert vector.step((GARBAGE, ""))[0] in vector.observation_space
    vector.close()


def test_gold_is_known(maker: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    env = maker().unwrapped
    assert isinstance(env, TextEnv)
    env.reset(seed=0)
    assert env.gold_action(env.task) is not None, "a built-in environment knows its gold actions"


@pytest.mark.parametrize("name", [name for name in ADAPTERS if name in SPECS])
def test_an_adapter_says_what_it_needs(name: str) -> None:
    with pytest.raises(UserError, match="needs the argument"):
        make(name)
