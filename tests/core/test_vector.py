"""Text environments in Gymnasium's vector environments: in this process, and in others."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial

import gymnasium
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlgym_llm.env import TextEnv
from rlgym_llm.errors import UserError
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Task
from rlgym_llm.vector_steps import info_of, real_steps

ID = "rlgym_llm:rlgym_llm/math-gsm8k-v0"  # with the module: a spawned process has no import
MAKE = partial(gymnasium.make, ID, source="starter", num_problems=4)


def gold(index: int) -> str:
    env = MAKE().unwrapped
    assert isinstance(env, TextEnv)
    return str(env.gold_action(env.tasks[index]))


@pytest.fixture(scope="module")
def asynchronous() -> Iterator[AsyncVectorEnv]:
    vector = AsyncVectorEnv([MAKE, MAKE], shared_memory=False, context="spawn")
    yield vector
    vector.close()


def scored(vector: VectorEnv) -> tuple[list[float], list[dict[str, float]]]:
    """One episode each of task 1: the right answer, and none."""
    vector.reset(seed=3, options={"index": 1})
    observations, rewards, terminated, _, infos = vector.step((gold(1), "no"))
    assert terminated.tolist() == [True, True]
    assert [conversation[-1].content for conversation in observations] == [gold(1), "no"]
    assert [info_of(infos, env)["score"].reward for env in (0, 1)] == rewards.tolist()
    return rewards.tolist(), [info_of(infos, env)["components"] for env in (0, 1)]


def test_other_processes_draw_the_tasks_that_this_one_draws(asynchronous: AsyncVectorEnv) -> None:
    # Stands before the next test, and ends with a reset: after an episode's last step the workers
    # of Gymnasium 1.4.0 reset once more where memory is not shared, whatever `reset` was called.
    def drawn(vector: VectorEnv) -> list[tuple[int, str]]:
        steps = real_steps(vector, lambda *_: ("a", "b"), num_rows=8, seed=11)
        return [(step.env, step.info["task_id"]) for step in steps]

    found = drawn(asynchronous)
    assert found == drawn(SyncVectorEnv([MAKE, MAKE]))
    assert len(found) == 2 * 4, "one-turn episodes in rows 0, 2, 4 and 6; row 7 is a reset"


def test_other_processes_score_as_this_one_does(asynchronous: AsyncVectorEnv) -> None:
    rewards, components = scored(asynchronous)
    assert rewards == [1.2, 0.0]  # math 1.0 + 0.2 of the format
    assert components == [
        {"math": 1.0, "format": 1.0, "lenient": 1.0},
        {"math": 0.0, "format": 0.0, "lenient": 0.0},
    ]
    assert (rewards, components) == scored(SyncVectorEnv([MAKE, MAKE]))


def test_shared_memory_is_refused_in_one_line() -> None:
    with pytest.raises(UserError) as refused:
        AsyncVectorEnv([MAKE], context="spawn")  # Gymnasium's default
    refused.value.__traceback__ = None
    gc.collect()
    assert str(refused.value) == (
        "Conversation() has no fixed size, so it cannot lie in shared memory: "
        "AsyncVectorEnv(..., shared_memory=False)"
    )


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_make_vec_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    vector = gymnasium.make_vec(
        ID,
        num_envs=2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        source="starter",
        num_problems=4,
    )
    steps = list(real_steps(vector, lambda *_: ("a", "b"), num_rows=4, seed=0))
    assert len(steps) == (4 if mode is AutoresetMode.NEXT_STEP else 8)
    for step in steps:
        assert step.terminated
        assert step.observation[-1].role == "user"
        assert step.next_observation == (*step.observation, step.next_observation[-1])
        assert step.info["score"].reward == step.reward == 0.0


def test_make_vec_makes_processes_too() -> None:
    vector = gymnasium.make_vec(
        ID,
        num_envs=1,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
        source="starter",
        num_problems=4,
    )
    vector.reset(options={"index": 2})
    assert vector.step((gold(2),))[1].tolist() == [1.2]
    vector.close()


def test_string_prompts_are_batched_as_strings() -> None:
    tasks = ListTasks([Task(prompt="1 + 1 =", answer="2")])
    vector = SyncVectorEnv([partial(TextEnv, tasks=tasks, defer_scoring=True)] * 2)
    assert vector.reset()[0] == ("1 + 1 =",) * 2
    observations, *_, infos = vector.step((" 2", " 3"))
    assert observations == ("1 + 1 = 2", "1 + 1 = 3")
    assert infos["unscored"].all()
