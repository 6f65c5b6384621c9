"""check_env passes a sound environment and names what a broken one breaks."""

import random
import threading

import gymnasium
import pytest

from rlgym_llm.check_env import check_env
from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Message, Task

TASKS = ListTasks(
    Task(prompt=(Message(role="user", content=f"{i} + 1 = ?"),), answer=str(i + 1))
    for i in range(5)
)


class ExactComposer:
    """1.0 for the answer and nothing but the answer."""

    def __call__(self, rollouts):
        return [self.card(r.id, float(r.text == r.task.answer)) for r in rollouts]

    def card(self, rollout_id, raw):
        component = Component(
            raw=raw,
            weight=1.0,
            transformed=raw,
            contribution=raw,
            status=ScoreStatus.OK,
            seconds=random.Random().random(),
        )
        return ScoreCard(
            rollout_id=rollout_id,
            reward=raw,
            status=CardStatus.SCORED,
            components={"exact": component},
        )

    def close(self):
        pass


@pytest.fixture(autouse=True)
def composer(monkeypatch):
    monkeypatch.setattr("rlgym_llm.env._new_composer", lambda *_: ExactComposer())


class Sums(TextEnv):
    def __init__(self, **options):
        super().__init__(**{"tasks": TASKS, **options})

    def gold_action(self, task):
        return task.answer


class TwoTurns(Sums):
    """A hint is given once; the state is the number of turns."""

    def __init__(self):
        super().__init__(max_turns=3)

    def respond(self, action):
        if self.turns:
            return TurnOutcome(terminated=True)
        return TurnOutcome(reply=(Message(role="user", content="sure?"),))

    gold_action = None


class WrongGold(Sums):
    def gold_action(self, task):
        return "no idea"


class GlobalRandom(Sums):
    def respond(self, action):
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
    def respond(self, action):
        return TurnOutcome(terminated=True, truncated="naïve" in action.text)


class StepsOn(Sums):
    def step(self, action):
        self._is_over = False
        return super().step(action)


class Forgetful(Sums):
    """Keeps state that pickling loses."""

    def __init__(self):
        super().__init__()
        self.memory = {"lock": threading.Lock()}

    def __getstate__(self):
        return {**super().__getstate__(), "memory": {}}

    def respond(self, action):
        reply = Message(role="user", content=f"{len(self.memory)}")
        return TurnOutcome(reply=(reply,), terminated=True)


class Unpicklable(Sums):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Counting(Sums):
    """The episode depends on how many came before."""

    count = 0

    def respond(self, action):
        type(self).count += 1
        reply = Message(role="user", content=f"{self.count}")
        return TurnOutcome(reply=(reply,), terminated=True)


class StrictAboutText(Sums):
    def respond(self, action):
        action.text.encode("ascii")
        return TurnOutcome(terminated=True)


@pytest.mark.parametrize("make", [Sums, TwoTurns])
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
        (WrongGold, "WrongGold, task 0: gold scores 0.0, garbage 0.0"),
        (GlobalRandom, "GlobalRandom draws from a global random generator"),
        (IgnoresSeed, "random number generator|super|seed"),
        (IgnoresOptions, "reset.options=.'no_such_option': 1.. is accepted in silence"),
        (TerminatesWhenCut, "a completion cut by its budget must truncate"),
        (BothFlags, "terminated and truncated at once"),
        (StepsOn, "stepping after the end is accepted in silence"),
        (Forgetful, "pickled in mid-episode steps otherwise"),
        (Counting, "(not equivalent|differs)"),
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
