"""Guess the number: hints, graded reward, halving as the best play, and splits."""

import itertools
import json
import pickle
import subprocess
import sys

import pytest
from rlgym_llm_envs.guess_number import GuessNumberEnv, GuessState

from rlgym_llm import UserError
from rlgym_llm.types import Action, FinishReason, Message, Task

PROGRAM = """
import json
from rlgym_llm_envs.guess_number import GuessNumberEnv
tasks = GuessNumberEnv(seed=3).tasks
print(json.dumps([[tasks[i].id, tasks[i].answer] for i in (0, 1, 17, 4095)]))
"""


def task(secret, low=1, high=16):
    prompt = (Message(role="user", content="Guess."),)
    return Task(
        prompt=prompt, answer=str(secret), info={"low": low, "high": high, "secret": secret}
    )


def play(env, guesses, **options):
    """The words of each answer, and the last step."""
    env.reset(seed=0, options=options)
    said = []
    for guess in guesses:
        step = env.step(guess)
        said += [message.content for message in step[4]["reply"]]
    return said, step


def play_gold(env):
    for turn in itertools.count(1):
        _, reward, terminated, truncated, _ = env.step(env.gold_action(env.task))
        if terminated or truncated:
            return reward, terminated, turn
    return None


def test_hints_lead_to_the_number():
    env = GuessNumberEnv()
    said, (_, reward, terminated, truncated, _) = play(env, ["8", "12", "10"], task=task(10))
    assert said == ["Higher.", "Lower."]
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert env.state == GuessState(low=9, high=11, num_guesses=3)


@pytest.mark.parametrize(
    ("num_misses", "reward"),
    [(0, 1.0), (4, 1.0), (5, 0.9), (6, 0.8), (7, 0.7)],  # 5 guesses are enough for 16 numbers
)
def test_each_guess_beyond_halving_costs_a_tenth(num_misses, reward):
    env = GuessNumberEnv()
    _, step = play(env, ["1"] * num_misses + ["16"], task=task(16))
    assert step[1:4] == (pytest.approx(reward), True, False)


def test_a_number_that_is_not_found_earns_nothing():
    env = GuessNumberEnv()
    said, step = play(env, ["1"] * 8, task=task(16))
    assert said == ["Higher."] * 8
    assert step[1:4] == (0.0, False, True)
    assert not step[4]["unscored"]


def test_the_reward_does_not_sink_below_a_tenth():
    _, step = play(GuessNumberEnv(max_turns=None), ["1"] * 40 + ["16"], task=task(16))
    assert step[1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I try 8.", "Higher."),
        ("Between 3 and 12, say\n8", "Higher."),
        ("1-8", "Higher."),
        ("-5", "Higher."),
        ("1 2 3 10 11", "Lower."),  # no hit by naming them all
        ("99999", "Lower."),
        ("ten", "Write one whole number."),
        ("", "Write one whole number."),
        ("10.5", "Write one whole number."),
        ("9" * 10_000, "Write one whole number."),
        ("١٠", "Write one whole number."),
        ("\ud800", "Write one whole number."),
    ],
)
def test_the_last_number_is_the_guess(text, said):
    env = GuessNumberEnv()
    assert play(env, [text], task=task(10))[0] == [said]
    assert env.state.num_guesses == 1


@pytest.mark.parametrize("size", [2, 7, 16, 31])
def test_halving_always_earns_the_maximum(size):
    env = GuessNumberEnv(max_turns=None)
    for secret in range(5, 5 + size):
        env.reset(seed=0, options={"task": task(secret, 5, 4 + size)})
        reward, terminated, num_turns = play_gold(env)
        assert (reward, terminated) == (env.gold_reward, True)
        assert num_turns <= size.bit_length()  # 31 numbers: 5 guesses


def test_tasks_are_what_they_say():
    env = GuessNumberEnv(low=-3, high=20, size=10, num_problems=300)
    for one in env.tasks:
        low, high = one.info["low"], one.info["high"]
        assert -3 <= low <= int(one.answer) <= high <= 20
        assert high - low == 9
        assert f"from {low} to {high}" in one.prompt[0].content
        assert one.answer == str(one.info["secret"])
    assert {one.info["low"] for one in env.tasks} == set(range(-3, 12))


def test_the_whole_range_may_be_the_one_range():
    env = GuessNumberEnv(low=1, high=100, size=None, num_problems=50)
    assert {(one.info["low"], one.info["high"]) for one in env.tasks} == {(1, 100)}


def test_splits_share_no_task():
    train, val = GuessNumberEnv(), GuessNumberEnv(split="val")
    assert (len(train.tasks), len(val.tasks)) == (4096, 200)
    assert not {one.id for one in train.tasks} & {one.id for one in val.tasks}
    assert GuessNumberEnv(split="test").tasks[7] == val.tasks[7]


def test_tasks_are_the_same_in_another_process():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    tasks = GuessNumberEnv(seed=3).tasks
    assert json.loads(done.stdout) == [[tasks[i].id, tasks[i].answer] for i in (0, 1, 17, 4095)]


def test_an_episode_branches_in_the_middle():
    env = GuessNumberEnv()
    env.reset(seed=0, options={"index": 5})
    env.step("1")
    clone, pickled = env.clone(), pickle.loads(pickle.dumps(env))
    played = play_gold(env)
    assert played[0] == 1.0
    assert play_gold(clone) == play_gold(pickled) == played


def test_a_guess_that_was_cut_is_not_answered():
    env = GuessNumberEnv()
    env.reset(seed=0, options={"task": task(10)})
    env.step("3")
    _, reward, terminated, truncated, info = env.step(
        Action(text="1", finish_reason=FinishReason.LENGTH)
    )
    assert (reward, terminated, truncated, info["unscored"]) == (0.0, False, True, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, "size=1 must be at least 2"),
        ({"size": 40}, "fit between 1 and 32"),
        ({"low": 9, "high": 3, "size": None}, "size=-5"),
        ({"high": 10**9}, "at most 9 digits"),
        ({"split": "dev"}, "split must be one of train, val, test, got 'dev'"),
    ],
)
def test_options_that_are_wrong(options, message):
    with pytest.raises(UserError, match=message):
        GuessNumberEnv(**options)
