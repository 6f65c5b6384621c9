"""What environments share within a process: composers, parsed rewards, read files, plugins."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm import compose_cache, plugins, task_cache
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import UnknownNameError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.rewards import Reward
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Task

TASKS = ListTasks([Task(prompt="1 + 1 =", answer="2")])
PLUGIN = """
    from rlgym_llm import Kind, Reward, RewardSpec, hookimpl

    class Watched(Reward):
        name = "watched"
        calls = []
        def setup(self, ctx):
            self.calls.append("setup")
        def score(self, rollout, ctx):
            return float(rollout.text == rollout.task.answer)
        def close(self):
            self.calls.append("close")

    @hookimpl
    def rlgym_register(kind):
        return [RewardSpec(name="watched", entry_point=f"{__name__}:Watched")] \\
            if kind is Kind.REWARD else []
"""


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Plugins, list[str]]:
    """Plugins with the reward ``watched``, and the calls that it saw."""
    path = tmp_path / "watched_plugin.py"
    path.write_text(textwrap.dedent(PLUGIN))
    found = Plugins.discover([path])
    cls: Any = found.load(found.rewards()["watched"])
    assert issubclass(cls, Reward)
    return found, cls.calls


@pytest.fixture
def nothing_installed_yet() -> Iterator[None]:
    before, plugins._installed = plugins._installed, None
    yield
    plugins._installed = before


def env_of(found: Plugins) -> TextEnv:
    env = TextEnv(tasks=TASKS, rewards={"components": {"watched": {}}})
    env.plugins = found
    return env


def scored(env: TextEnv, text: str = "2") -> float:
    env.reset()
    return env.step(text)[1]


def test_environments_that_score_alike_share_a_composer_until_the_last_closes(
    watched: tuple[Plugins, list[str]],
) -> None:
    found, calls = watched
    first, second = env_of(found), env_of(found)
    assert (scored(first), scored(second, "3"), calls) == (1.0, 0.0, ["setup"])
    assert first._composer is second._composer
    first.close()
    first.close()
    assert calls == ["setup"], "the second one still scores"
    assert scored(second) == 1.0
    second.close()
    assert calls == ["setup", "close"]
    third = env_of(found)
    assert scored(third) == 1.0, "a composer that was closed is set up again"
    assert calls == ["setup", "close", "setup"]
    third.close()


def test_other_plugins_are_another_composer(watched: tuple[Plugins, list[str]]) -> None:
    env = env_of(watched[0])
    scored(env)
    other = TextEnv(tasks=TASKS, rewards={"components": {"watched": {}}})
    assert other.rewards is env.rewards
    other.reset()
    with pytest.raises(UnknownNameError, match="watched"):
        other.step("2")
    other.close()
    env.close()


def test_threads_that_ask_at_once_get_one_that_is_set_up_once(
    watched: tuple[Plugins, list[str]],
) -> None:
    found, calls = watched
    envs = [env_of(found) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(scored, envs)) == [1.0] * 8
    assert calls == ["setup"]
    for env in envs:
        env.close()
    assert calls == ["setup", "close"]


def test_a_composer_that_cannot_be_is_not_kept() -> None:
    rewards = read_rewards({"components": {"no_such_reward": {}}})
    for _ in range(2):
        with pytest.raises(UnknownNameError):
            compose_cache.lend(rewards, None)
    assert not any(lent.rewards is rewards for lent in compose_cache._lent.values())


def test_composers_that_nobody_uses_are_forgotten_in_time() -> None:
    for limit in range(1, compose_cache._MOST + 5):
        rewards = read_rewards({"components": {"exact_match": {"weight": float(limit)}}})
        compose_cache.give_back(compose_cache.lend(rewards, None))
    unused = [lent for lent in compose_cache._lent.values() if not lent.num_users]
    assert len(unused) == compose_cache._MOST


def test_rewards_are_parsed_once_by_their_content() -> None:
    one = compose_cache.parsed({"components": {"exact_match": {"weight": 1}}})
    assert compose_cache.parsed({"components": {"exact_match": {"weight": 1}}}) is one
    assert compose_cache.parsed({"components": {"exact_match": {"weight": 1.5}}}) is not one
    changed: dict[str, Any] = {"components": {"exact_match": {"weight": 1.0}}}
    first = compose_cache.parsed(changed)
    changed["components"]["exact_match"]["weight"] = 2.0
    assert compose_cache.parsed(changed).components["exact_match"].weight == 2.0
    assert first.components["exact_match"].weight == 1.0


def test_a_file_is_known_until_it_changes(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("one")
    link.symlink_to(path)
    key = task_cache.file_key(path)
    assert task_cache.file_key(link) == key
    os.utime(path, ns=(1, 2))
    assert task_cache.file_key(path) != key
    with pytest.raises(FileNotFoundError):
        task_cache.file_key(tmp_path / "b")


def test_what_was_made_is_kept_and_what_failed_is_not() -> None:
    calls: list[int] = []

    def make() -> list[int]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")
        return calls

    with pytest.raises(ValueError, match="not yet"):
        task_cache.cached("key", make)
    assert task_cache.cached("key", make) is task_cache.cached("key", make)
    assert len(calls) == 2
    task_cache.cached(["no key"], make)  # type: ignore[arg-type]  # cannot be hashed: made anew
    assert len(calls) == 3
    for other in range(task_cache._MOST):
        task_cache.cached(("other", other), list)
    task_cache.cached("key", make)
    assert len(calls) == 4, "the oldest was forgotten"
    task_cache.clear()


@pytest.mark.usefixtures("nothing_installed_yet")
def test_installed_plugins_are_found_once_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Plugins.installed()
    assert Plugins.installed() is found
    assert Plugins.discover() is not found
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    second = Plugins.installed()
    assert second is not found, "sys.path has changed"
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 5)
    assert Plugins.installed() is second
    os.utime(tmp_path, ns=(1, 1))  # as installing a distribution does
    monkeypatch.setattr(time, "monotonic", lambda: now + 10)
    assert Plugins.installed() is not second
