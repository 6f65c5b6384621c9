"""States, clones and fresh copies: what goes with an episode, and what is shared."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.env_state import STATE_VERSION, EnvState
from rlgym_llm.episode_env import episode_attributes
from rlgym_llm.errors import UserError
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Action, Message, Prompt, Task

TASKS = ListTasks(
    Task(prompt=(Message(role="user", content=f"word {i}?"),), answer=str(i), id=str(i))
    for i in range(5)
)


class Dice(TextEnv):
    """Throws a die in every turn; keeps a sum, a log, and a table that nothing changes."""

    shared = ("table",)

    def __init__(self, **options: Any) -> None:
        self.table = {6: "six"}
        self.log: list[int] = []
        super().__init__(tasks=TASKS, max_turns=None, defer_scoring=True, **options)

    def begin(self, task: Task) -> None:
        self.sum = 0
        self.log.clear()
        self.first = int(self.np_random.integers(100))

    def opening(self, task: Task) -> Prompt:
        return (*task.prompt, Message(role="user", content=f"from {self.first}"))

    def advance(self, action: Action) -> TurnOutcome:
        thrown = int(self.np_random.integers(1, 7))
        self.sum += thrown
        self.log.append(thrown)
        reply = Message(role="user", content=f"{thrown}, {self.sum} in {len(self.log)}")
        return TurnOutcome(reply=(reply,), env_reward=thrown, terminated=self.sum > 30)


def played(env: TextEnv, num_turns: int) -> list[Any]:
    return [env.step("throw") for _ in range(num_turns)]


def in_turn(num_turns: int, **reset: Any) -> Dice:
    env = Dice()
    env.reset(**{"seed": 4, **reset})
    played(env, num_turns)
    return env


def test_a_clone_goes_on_alike_and_apart() -> None:
    env = in_turn(2)
    clone, other = env.clone(), copy.deepcopy(env)
    rest = played(env, 2)
    assert env.sum > 0
    assert played(clone, 2) == rest
    assert played(other, 2) == rest
    assert clone.log == env.log
    assert clone.log is not env.log
    assert clone.turns == env.turns
    assert clone.reset() == env.reset(), "the draw of the next task goes on alike too"


def test_a_state_can_be_gone_back_to_from_anywhere() -> None:
    env = in_turn(2)
    state = env.get_state()
    rest = played(env, 3)
    env.reset(seed=99)
    for one in (env, Dice(), in_turn(1, seed=7)):
        one.set_state(pickle.loads(pickle.dumps(state)))
        assert one.task is not None
        assert played(one, 3) == rest
    assert state.own == {"sum": sum(state.own["log"]), "log": state.own["log"], "first": env.first}


@given(seed=st.integers(0, 2**32), num_turns=st.integers(0, 4), more=st.integers(1, 2))
def test_saved_and_played_is_played(seed: int, num_turns: int, more: int) -> None:
    env = in_turn(num_turns, seed=seed)
    state = env.get_state()
    assert (state.index, state.turns, state.is_over) == (env._index, env.turns, False)
    other = Dice()
    other.set_state(state)
    assert other.get_state() == state
    assert played(other, more) == played(env, more)
    assert state.schema_version == STATE_VERSION


def test_what_is_over_stays_over() -> None:
    env = Dice()
    env.reset(seed=1)
    while not env.step("throw")[2]:
        pass
    other = Dice()
    other.set_state(env.get_state())
    assert other.turns == env.turns
    with pytest.raises(ResetNeeded, match="is over"):
        other.step("throw")


def test_fresh_shares_what_is_shared_and_nothing_of_the_episode() -> None:
    env = in_turn(3)
    fresh = env.fresh()
    assert fresh.tasks is env.tasks
    assert fresh.rewards is env.rewards
    assert fresh.table is env.table
    assert fresh.log is not env.log
    assert fresh.defer_scoring
    assert not hasattr(fresh, "sum"), "begin makes it"
    assert fresh.turns == ()
    with pytest.raises(ResetNeeded, match="reset first"):
        fresh.step("throw")
    alone = Dice()
    assert fresh.reset(seed=4) == alone.reset(seed=4)
    assert played(fresh, 3) == played(alone, 3)


def test_a_pickled_copy_still_tells_what_is_the_episodes() -> None:
    env = in_turn(2)
    copied = pickle.loads(pickle.dumps(env))
    rest = played(env, 2)
    assert played(copied.clone(), 2) == rest
    assert not hasattr(copied.fresh(), "sum")
    assert copied.fresh().reset(seed=9) == Dice().reset(seed=9)
    state = copied.get_state()
    assert set(state.own) == {"sum", "log", "first", "table"} - set(Dice.shared)


def test_before_the_first_reset() -> None:
    env = Dice()
    with pytest.raises(ResetNeeded, match="no task yet"):
        env.get_state()
    assert env.clone().reset(seed=2) == env.reset(seed=2)


def test_a_state_of_another_version_is_refused() -> None:
    state = in_turn(0).get_state()
    old = EnvState(
        **{
            name: getattr(state, name)
            for name in EnvState.__slots__
            if name not in ("schema_version", "own")
        },
        schema_version=0,
    )
    with pytest.raises(UserError, match="Dice reads states of version 1, got one of version 0"):
        Dice().set_state(old)


def test_a_reset_that_fails_leaves_no_episode() -> None:
    class Fails(Dice):
        def begin(self, task: Task) -> None:
            super().begin(task)
            if task.id == "3":
                raise ValueError("no 3")

    env = Fails()
    env.reset(options={"index": 1})
    with pytest.raises(ValueError, match="no 3"):
        env.reset(options={"index": 3})
    with pytest.raises(ResetNeeded, match="is over"):
        env.step("throw")


def test_hooks_of_a_subclass() -> None:
    class Calls(TextEnv):
        tools = ({"type": "function", "function": {"name": "add"}},)

        def advance(self, action: Action) -> TurnOutcome:
            call = {"id": "1", "type": "function", "function": {"name": "add"}}
            spoken = Message(role="assistant", content="adding", tool_calls=(call,))
            reply = Message(role="tool", content="5", tool_call_id="1")
            return TurnOutcome(spoken=spoken, reply=(reply,))

    env = Calls(tasks=TASKS, max_turns=None)
    observation, info = env.reset(options={"index": 0})
    assert observation == TASKS[0].prompt
    assert info == {"task_id": "0", "index": 0, "tools": Calls.tools}
    observation = env.step("<call>add</call>")[0]
    assert observation[1].tool_calls[0]["id"] == "1"
    assert observation[1].content == "adding"
    assert env.turns[0].completion.text == "<call>add</call>", "what was said is kept as it was"
    assert Dice().gold_action(TASKS[0]) is None


def test_what_an_episode_may_have_changed() -> None:
    one = ("a",)
    made = {"kept": one, "count": 0, "seen": {1}}
    now = {"kept": one, "count": 1, "seen": made["seen"], "new": None, "tasks": 5}
    found = episode_attributes(now, made, ("tasks",))
    assert found == {"count": 1, "seen": {1}, "new": None}
