"""MultiTurnEnv: what respond may return, and the state of an episode."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from rlgym_llm.multi_turn import MultiTurnEnv, Reply
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Action, FinishReason, Message, Task


@dataclass(slots=True)
class Count:
    left: int
    dice: int


class CountDown(MultiTurnEnv[Count]):
    """Counts down from a die's roll; says what it was told to say."""

    def start(self, task):
        return Count(left=3, dice=int(self.np_random.integers(1_000_000)))

    def respond(self, state, action):
        state.left -= 1
        if state.left:
            return f"{state.dice}/{state.left}"
        return None


class Says(MultiTurnEnv[None]):
    def __init__(self, answer, **options):
        super().__init__(**options)
        self.answer = answer

    def respond(self, state, action):
        return self.answer


def tasks(prompt=None):
    return ListTasks([Task(prompt=prompt or (Message(role="user", content="Go."),))])


def user(words):
    return Message(role="user", content=words)


def test_text_is_a_message_of_the_user_and_none_is_the_end():
    env = CountDown(tasks=tasks())
    env.reset(seed=3)
    dice = env.state.dice
    observation, reward, terminated, truncated, info = env.step("a")
    assert info["reply"] == (user(f"{dice}/2"),)
    assert observation[-2:] == (Message(role="assistant", content="a"), user(f"{dice}/2"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    env.step("b")
    _, _, terminated, truncated, info = env.step("c")
    assert (terminated, truncated, info["reply"]) == (True, False, ())
    with pytest.raises(ResetNeeded):
        env.step("d")


@pytest.mark.parametrize(
    ("answer", "reply", "reward", "over"),
    [
        ("", ("",), None, (False, False)),
        ([user("a"), user("b")], ("a", "b"), None, (False, False)),
        (Reply(messages=[user("a")], reward=np.float32(0.5)), ("a",), 0.5, (False, False)),
        (Reply(reward=-1, terminated=True), (), -1.0, (True, False)),
        (Reply(truncated=True), (), None, (False, True)),
        (None, (), None, (True, False)),
    ],
)
def test_what_respond_may_return(answer, reply, reward, over):
    env = Says(answer, tasks=tasks())
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step("a")
    assert tuple(message.content for message in info["reply"]) == reply
    assert info["env_reward"] == reward
    assert (terminated, truncated) == over


@pytest.mark.parametrize("answer", [5, {"role": "user"}, ["text"], True])
def test_what_respond_may_not_return(answer):
    env = Says(answer, tasks=tasks())
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"Says\.respond returned"):
        env.step("a")


def test_an_answer_without_a_message_is_refused():
    env = Says((), tasks=tasks())
    env.reset(seed=0)
    with pytest.raises(ValueError, match="nothing to answer"):
        env.step("a")


def test_an_environment_without_respond_says_what_is_missing():
    env = MultiTurnEnv(tasks=tasks())
    env.reset(seed=0)
    with pytest.raises(NotImplementedError, match=r"must define respond\(state, action\)"):
        env.step("a")


def test_the_turns_are_bounded():
    env = Says("more", tasks=tasks(), max_turns=2)
    env.reset(seed=0)
    assert [env.step("a")[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_a_completion_that_was_cut_is_not_answered():
    env = CountDown(tasks=tasks())
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(
        Action(text="a", finish_reason=FinishReason.LENGTH)
    )
    assert (terminated, truncated, info["reply"], env.state.left) == (False, True, (), 3)


def test_string_prompts_grow_as_strings():
    env = Says("more", tasks=tasks("Go: "))
    assert env.reset(seed=0)[0] == "Go: "
    assert env.step("a ")[0] == "Go: a more"


def test_chance_comes_from_the_seed_and_each_episode_starts_anew():
    env = CountDown(tasks=tasks())
    dice = []
    for seed in (5, 5, 6):
        env.reset(seed=seed)
        dice.append(env.state.dice)
        env.step("a")
    assert dice[0] == dice[1] != dice[2]
    env.reset(seed=5)
    assert env.state == Count(left=3, dice=dice[0])


def play(env):
    return [env.step(text) for text in ("b", "c")]


def test_a_state_is_a_copy_that_can_be_gone_on_from_twice():
    env = CountDown(tasks=tasks())
    env.reset(seed=1)
    env.step("a")
    kept = env.get_state()
    clone, pickled = env.clone(), pickle.loads(pickle.dumps(env))
    played = play(env)
    assert play(clone) == play(pickled) == played
    other = env.fresh()
    for _ in range(2):
        other.set_state(pickle.loads(pickle.dumps(kept)))
        assert play(other) == played


def test_a_fresh_one_has_no_episode():
    env = CountDown(tasks=tasks())
    env.reset(seed=1)
    other = env.fresh()
    with pytest.raises(ResetNeeded):
        other.step("a")
    other.reset(seed=2)
    other.step("a")
    assert (env.state.left, other.state.left) == (3, 2)


def test_a_state_may_be_replaced():
    class Sum(MultiTurnEnv[int]):
        def start(self, task):
            return 0

        def respond(self, state, action):
            self.state = state + int(action.text)
            return str(self.state)

    env = Sum(tasks=tasks())
    env.reset(seed=0)
    assert [env.step(text)[4]["reply"][0].content for text in "123"] == ["1", "3", "6"]
