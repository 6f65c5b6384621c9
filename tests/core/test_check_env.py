"""check_env passes a sound environment and names what a broken one breaks."""

import random
import threading

import gymnasium
import pytest

from rlgym_llm.check_env import check_env
from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Message, Task

TASKS = ListTasks(
    Task(prompt=(Message(role="user", content=f"{i} + 1 = ?"),), answer=str(i + 1))
    for i in range(5)
)


class Sums(TextEnv):
    def __init__(self, **options):
        super().__init__(**{"tasks": TASKS, "rewards": {"exact_match": 1.0}, **options})

    def gold_action(self, task):
        return task.answer


class TwoTurns(Sums):
    """A hint is given once; the state is the number of turns."""

    def __init__(self):
        super().__init__(max_turns=3)

    def advance(self, action):
        if self.turns:
            return TurnOutcome(terminated=True)
        return TurnOutcome(reply=(Message(role="user", content="sure?"),))

    gold_action = None


class WrongGold(Sums):
    def gold_action(self, task):
        return "no idea"


class GlobalRandom(Sums):
    def advance(self, action):
        random.random()
        return TurnOutcome(terminated=True)


class IgnoresSeed(Sums):
    def reset(self, *, seed=None, options=None):
        return super().reset(options=options)


class IgnoresOptions(Sums):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class TerminatesWhenCut(Sums):
    def step(self, action):
        observation, reward, *_, info = super().step(action)
        return observation, reward, True, False, info


class BothFlags(Sums):
    def advance(self, action):
        return TurnOutcome(terminated=True, truncated="naïve" in action.text)


class StepsOn(Sums):
    def step(self, action):
        self._is_over = False
        return super().step(action)


class Forgetful(Sums):
    """Keeps state that pickling loses."""

    def __init__(self):
        super().__init__()
        self.memory = {"seen": 1}

    def __getstate__(self):
        return {**super().__getstate__(), "memory": {}}

    def advance(self, action):
        reply = Message(role="user", content=f"{len(self.memory)}")
        return TurnOutcome(reply=(reply,), terminated=True)


class Unpicklable(Sums):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Counting(Sums):
    """The episode depends on how many came before."""

    count = 0

    def advance(self, action):
        type(self).count += 1
        reply = Message(role="user", content=f"{self.count}")
        return TurnOutcome(reply=(reply,), terminated=True)


class Countdown(Sums):
    """Gold takes three turns: counts down, then says the answer."""

    def __init__(self, **options):
        super().__init__(max_turns=None, rewards={"env": 1.0}, **options)

    def begin(self, task):
        self.left = 2

    def advance(self, action):
        if action.text != (str(self.left) if self.left else self.task.answer):
            return TurnOutcome(terminated=True, env_reward=0)
        if not self.left:
            return TurnOutcome(terminated=True, env_reward=1)
        self.left -= 1
        return TurnOutcome(reply=(Message(role="user", content="go on"),))

    def gold_action(self, task):
        return str(self.left) if self.left else task.answer


class PoorGold(Countdown):
    """Says that more can be had than its gold gets."""

    gold_reward = 2.0


class EndlessGold(Countdown):
    def advance(self, action):
        return TurnOutcome(reply=(Message(role="user", content="go on"),))


class GarbageIsRight(Sums):
    accuracy = "length"

    def __init__(self):
        super().__init__(
            rewards={
                "components": {
                    "exact_match": {},
                    "length": {"reward": "regex", "weight": 0, "options": {"pattern": "."}},
                }
            }
        )


class Neighbourly(Sums):
    """Copies share a list, so that an episode sees what others said."""

    shared = ("said",)

    def __init__(self):
        super().__init__(max_turns=2)
        self.said = []

    def begin(self, task):
        self.said.clear()

    def advance(self, action):
        self.said.append(action.text)
        reply = Message(role="user", content=f"{len(self.said)} said")
        return TurnOutcome(reply=(reply,), terminated=len(self.turns) == 1)

    gold_action = None


class HalfSaved(Countdown):
    """Forgets in a saved state what it counts."""

    def own_state(self):
        return {"left": 2}


class StrictAboutText(Sums):
    def advance(self, action):
        action.text.encode("ascii")
        return TurnOutcome(terminated=True)


@pytest.mark.parametrize("make", [Sums, TwoTurns, Countdown])
def test_sound_environments_pass(make):
    check_env(make())


def test_string_prompts_pass():
    check_env(TextEnv(tasks=ListTasks([Task(prompt="1 + 1 =", answer="2")])))


def test_registered_environments_pass_rendering_included():
    gymnasium.register("rlgym_llm_test/sums-v0", entry_point=Sums)
    try:
        check_env(gymnasium.make("rlgym_llm_test/sums-v0"))
    finally:
        del gymnasium.registry["rlgym_llm_test/sums-v0"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (WrongGold, "WrongGold, task 0: gold scores 0.0, and the highest reward is 1.0"),
        (GlobalRandom, "GlobalRandom draws from a global random generator"),
        (IgnoresSeed, "random number generator|super|seed"),
        (IgnoresOptions, "reset.options=.'no_such_option': 1.. is accepted in silence"),
        (TerminatesWhenCut, "a completion cut by its budget must truncate"),
        (BothFlags, "terminated and truncated at once"),
        (StepsOn, "stepping after the end is accepted in silence"),
        (Forgetful, "pickled in mid-episode steps otherwise"),
        (Counting, "(not equivalent|differs)"),
        (PoorGold, "PoorGold, task 0: gold scores 1.0, and the highest reward is 2.0"),
        (EndlessGold, "gold actions do not end the episode within 50 turns"),
        (GarbageIsRight, "garbage is as right as gold by 'length'"),
        (Neighbourly, "Neighbourly.*(cloned in mid-episode|beside others)"),
        (HalfSaved, "cloned in mid-episode steps otherwise"),
    ],
)
def test_broken_environments_are_named(make, message):
    with pytest.raises(AssertionError, match=message):
        check_env(make())


def test_what_cannot_be_pickled_or_read_fails_by_itself():
    with pytest.raises(TypeError, match="lock"):
        check_env(Unpicklable())
    with pytest.raises(UnicodeEncodeError):
        check_env(StrictAboutText())


def test_only_scoring_text_environments_can_be_checked():
    with pytest.raises(AssertionError, match="CartPoleEnv is no TextEnv"):
        check_env(gymnasium.make("CartPole-v1"))
    with pytest.raises(AssertionError, match="defer_scoring=False"):
        check_env(Sums(defer_scoring=True))
