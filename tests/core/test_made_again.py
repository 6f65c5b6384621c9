"""`make` copies what it made of the same file and arguments: equal to a new one, and apart."""

from __future__ import annotations

import json
import os
import pickle
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from rlgym_llm import task_cache
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError, DataError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import make
from rlgym_llm.spaces import UnicodeText

PLUGIN = """
    from rlgym_llm import EnvSpec, Kind, hookimpl
    from rlgym_llm_envs.math_gsm8k import MathGsm8kEnv

    class Counted(MathGsm8kEnv):
        made = 0
        def __init__(self, **options):
            super().__init__(**options)
            type(self).made += 1

    class Kept(Counted):
        data_files = ("data",)

    class Other:
        data_files = ("data",)
        def __init__(self, data):
            raise ValueError(f"no environment of {data}")

    @hookimpl
    def rlgym_register(kind):
        names = {"counted": "Counted", "kept": "Kept", "other": "Other"}
        return [
            EnvSpec(name=name, entry_point=f"{__name__}:{attr}") for name, attr in names.items()
        ] if kind is Kind.ENV else []
"""


def write(path: Path, *answers: int) -> Path:
    rows = [{"question": f"What is {n}?", "answer": f"It is.\n#### {n}"} for n in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    task_cache.clear()
    return write(tmp_path / "numbers.jsonl", 3, 4)


@pytest.fixture
def plugins(tmp_path: Path) -> Plugins:
    path = tmp_path / "again_plugin.py"
    path.write_text(textwrap.dedent(PLUGIN))
    return Plugins.discover([path])


def inner(env: gymnasium.Env[Any, Any]) -> TextEnv:
    assert isinstance(env.unwrapped, TextEnv)
    return env.unwrapped


def played(env: gymnasium.Env[Any, Any], reply: str, **how: Any) -> tuple[Any, ...]:
    prompt, info = env.reset(**how)
    observation, reward, *ends, last = env.step(reply)
    return prompt, info, observation, reward, ends, last


def test_it_is_made_once_and_each_is_apart(data: Path, plugins: Plugins) -> None:
    cls: Any = plugins.load(plugins.envs()["kept"])
    first, second = (make("kept", data=data, plugins=plugins) for _ in range(2))
    assert cls.made == 1
    assert inner(first) is not inner(second)
    assert inner(first).tasks is inner(second).tasks
    first.reset(options={"index": 0})
    first.step("#### 3")
    with pytest.raises(gymnasium.error.ResetNeeded):
        second.step("#### 3")
    assert inner(second).turns == ()
    first.action_space.seed(5)
    second.action_space.seed(6)
    assert first.action_space.sample() == UnicodeText(seed=5).sample()
    inner(first).defer_scoring = True
    assert not inner(make("kept", data=data, plugins=plugins)).defer_scoring


def test_it_plays_as_one_that_gymnasium_makes(data: Path) -> None:
    theirs = gymnasium.make("rlgym_llm/math-gsm8k-v0", data=data, disable_env_checker=True)
    expected = [played(theirs, "#### 4", seed=seed) for seed in range(6)]
    assert {episode[1]["index"] for episode in expected} == {0, 1}
    for _ in range(2):
        ours = make("math-gsm8k", data=data)
        assert [played(ours, "#### 4", seed=seed) for seed in range(6)] == expected
        assert (str(ours), ours.spec) == (str(theirs), theirs.spec)
        ours.close()
    theirs.close()


def test_its_spec_is_its_own_and_makes_another(data: Path) -> None:
    first, second = (make("math-gsm8k", data=data) for _ in range(2))
    assert first.spec == second.spec
    assert inner(first).spec is not inner(second).spec
    assert first.spec is not None
    again = gymnasium.make(first.spec)
    assert played(again, "#### 3", seed=1)[:2] == played(first, "#### 3", seed=1)[:2]


def test_a_pickled_one_plays_the_same(data: Path) -> None:
    make("math-gsm8k", data=data)
    env = make("math-gsm8k", data=data)
    other = pickle.loads(pickle.dumps(env))
    assert played(other, "#### 3", seed=2) == played(env, "#### 3", seed=2)


def test_a_changed_file_is_read_again(data: Path) -> None:
    before = make("math-gsm8k", data=data)
    write(data, 5)
    os.utime(data, ns=(1, 1))
    after = make("math-gsm8k", data=data)
    assert len(inner(before).tasks) == 2
    assert [task.answer for task in (inner(after).tasks[0],)] == ["5"]
    shots = write(data.with_name("shots.jsonl"), 7)
    options: Any = {"data": data, "few_shot": 1, "few_shot_data": shots}
    assert "What is 7?" in str(make("math-gsm8k", **options).reset()[0])
    write(shots, 8)
    os.utime(shots, ns=(1, 1))
    assert "What is 8?" in str(make("math-gsm8k", **options).reset()[0])


def test_what_is_wrong_is_told_each_time(data: Path) -> None:
    make("math-gsm8k", data=data, few_shot=1)
    for _ in range(2):
        with pytest.raises(UserError, match="few_shot must be"):
            make("math-gsm8k", data=data, few_shot=True)  # which equals 1
        with pytest.raises(ConfigError, match="did you mean 'data'"):
            make("math-gsm8k", date=data)
        with pytest.raises(DataError, match="no such file"):
            make("math-gsm8k", data=data.with_name("lost.jsonl"))
    data.unlink()
    with pytest.raises(DataError, match="no such file"):
        make("math-gsm8k", data=data, few_shot=1)


def test_other_arguments_and_wrappers_are_another_environment(data: Path) -> None:
    make("math-gsm8k", data=data)
    assert "TimeLimit" in str(make("math-gsm8k", data=data, max_episode_steps=2))
    assert "PassiveEnvChecker" in str(make("math-gsm8k", data=data, disable_env_checker=False))
    assert inner(make("math-gsm8k", data=data, render_mode="ansi")).render_mode == "ansi"
    rewards = {"components": {"exact_match": {"weight": 2.0}}}
    env = make("math-gsm8k", data=data, rewards=rewards)
    assert list(inner(env).rewards.components) == ["exact_match"]
    assert make("math-gsm8k", data=data, prompt_style="string").reset()[0] != env.reset()[0]


def test_a_class_that_does_not_say_so_itself_is_called_each_time(
    data: Path, plugins: Plugins
) -> None:
    cls: Any = plugins.load(plugins.envs()["counted"])
    for made in (1, 2):
        make("counted", data=data, plugins=plugins)
        assert cls.made == made
    with pytest.raises(ValueError, match="no environment of"):
        make("other", data=data, plugins=plugins)


def test_threads_make_environments_that_do_not_meet(data: Path) -> None:
    def play(index: int) -> list[float]:
        rewards = []
        for _ in range(20):
            env = make("math-gsm8k", data=data)
            env.reset(options={"index": index % 2})
            rewards.append(float(env.step("It is 3.\n#### 3")[1]))
            env.close()
        return rewards

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(play, range(4)))
    # The right answer, 1.0, and its layout, 0.2; the layout alone.
    assert found == [[1.2] * 20, [0.2] * 20] * 2
