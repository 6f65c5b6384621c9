"""real_steps leaves out the rows that are resets, under every autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.errors import UserError
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Message, Task
from rlgym_llm.vector_steps import info_of, real_steps

ALL_MODES = list(AutoresetMode)
TASKS = ListTasks(Task(prompt=f"task {index}", id=str(index)) for index in range(3))


class Steps(gymnasium.Env[int, int]):
    """Counts to ``length`` and gives 1 for the last step."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return 0, {}

    def step(self, action: int) -> Any:
        self.at += 1
        is_over = self.at == self.length
        return self.at, float(is_over), is_over, False, {"at": self.at}


class TwoTurns(TextEnv):
    """Asks back once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(tasks=TASKS, max_turns=None, defer_scoring=True, **options)

    def advance(self, action: Any) -> TurnOutcome:
        if self.turns:
            return TurnOutcome(terminated=True, env_reward=1)
        return TurnOutcome(reply=(Message(role="user", content=" sure? "),))


def vector_of(*lengths: int, mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([lambda n=n: Steps(n) for n in lengths], autoreset_mode=mode)


def no_action(observations: Any, infos: Any) -> list[int]:
    return [0] * len(observations)


@pytest.mark.data
@pytest.mark.parametrize("mode", ALL_MODES)
def test_a_reset_is_no_transition(bug_report: Any, mode: AutoresetMode) -> None:
    case = bug_report("env-next_step_autoreset_row")
    given, right = case["input"], case["right"]["values"]
    vector = vector_of(given["episode_len"], mode=mode)
    if mode is AutoresetMode.NEXT_STEP:  # what Gymnasium itself gives is what the report says
        vector.reset()
        raw = [vector.step([0])[:3] for _ in range(given["vector_steps"])]
        assert [[obs[0], r[0], bool(done[0])] for obs, r, done in raw] == given["raw"]
    steps = list(real_steps(vector, no_action, num_rows=given["vector_steps"]))
    if mode is AutoresetMode.NEXT_STEP:
        assert [step.row for step in steps] == right["valid_rows"]
        assert sum(step.terminated for step in steps) == len(right["returns"])
    assert all((s.observation, s.next_observation) in {(0, 1), (1, 2)} for s in steps)
    returns = [step.reward for step in steps if step.terminated]
    assert returns[:2] == right["returns"]
    assert [step.reward for step in steps if not step.terminated] == [0.0] * (
        len(steps) - len(returns)
    )


@pytest.mark.parametrize("mode", ALL_MODES)
def test_environments_of_unequal_length_keep_apart(mode: AutoresetMode) -> None:
    steps = list(real_steps(vector_of(1, 3, mode=mode), no_action, num_rows=12, seed=0))
    for env, length in enumerate((1, 3)):
        own = [step for step in steps if step.env == env]
        wanted = [index % length for index in range(len(own))]
        assert [step.observation for step in own] == wanted
        assert [step.next_observation for step in own] == [at + 1 for at in wanted]
        assert [step.info["at"] for step in own] == [at + 1 for at in wanted]
        # NEXT_STEP spends every (length + 1)-th row on a reset, the others none.
        lost = 12 // (length + 1) if mode is AutoresetMode.NEXT_STEP else 0
        assert len(own) == 12 - lost


@pytest.mark.parametrize("mode", ALL_MODES)
def test_text_episodes_come_whole(mode: AutoresetMode) -> None:
    vector = SyncVectorEnv([TwoTurns, TwoTurns], autoreset_mode=mode)
    steps = list(real_steps(vector, lambda *_: ("yes", "no"), num_rows=6, seed=1))
    for env, word in enumerate(("yes", "no")):
        own = [step for step in steps if step.env == env]
        for first, last in zip(own[::2], own[1::2], strict=True):
            task = f"task {first.info['task_id']}"
            assert (first.observation, first.terminated) == (task, False)
            assert last.observation == first.next_observation == f"{task}{word} sure? "
            assert (last.next_observation, last.terminated) == (f"{task}{word} sure? {word}", True)
            assert last.info["task_id"] == first.info["task_id"]
            assert last.info["env_reward"] == 1.0
            assert last.info["unscored"]


def test_a_vector_that_does_not_say_its_mode_is_refused() -> None:
    vector = vector_of(2, mode=AutoresetMode.NEXT_STEP)
    vector.metadata = {}
    with pytest.raises(UserError, match="SyncVectorEnv does not tell its autoreset mode"):
        next(real_steps(vector, no_action))


def test_info_of_goes_into_dictionaries() -> None:
    infos = {
        "components": {"math": np.array([1.0, 0.0]), "_math": np.array([True, False])},
        "_components": np.array([True, True]),
        "score": np.array([None, "card"], dtype=object),
        "_score": np.array([False, True]),
    }
    assert info_of(infos, 0) == {"components": {"math": 1.0}}
    assert info_of(infos, 1) == {"components": {}, "score": "card"}
