import math
import pickle
from typing import Any

import pytest
from rlgym_llm_rewards.regex import Regex

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn


def score(text: str, pattern: str, answer: str | None = "42", **options: Any) -> Score:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt="?", answer=answer)
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
    reward = build_reward(Regex, {"pattern": pattern, **options})
    return score_rollouts(reward, [rollout], RewardContext())[0]


@pytest.mark.parametrize(
    ("text", "pattern", "options", "value"),
    [
        ("it is 42.", r"\d+", {}, 1.0),
        ("it is", r"\d+", {}, 0.0),
        ("<think>\na\nb\n</think>", "<think>.*</think>", {}, 1.0),
        ("<think>\na\n</think>", "<think>.*</think>", {"dotall": False}, 0.0),
        ("42", r"\d+", {"mode": "fullmatch"}, 1.0),
        ("42\n", r"\d+", {"mode": "fullmatch"}, 0.0),
        ("42\n", r"\d+\s*", {"mode": "fullmatch"}, 1.0),
        ("YES", "yes", {}, 0.0),
        ("YES", "yes", {"flags": ["ignorecase"]}, 1.0),
        ("a\nb", "^b$", {}, 0.0),
        ("a\nb", "^b$", {"flags": ["multiline"]}, 1.0),
        ("٤٢", r"\d+", {}, 1.0),
        ("٤٢", r"\d+", {"flags": ["ascii"]}, 0.0),
        ("ab", "a  b  # both", {"flags": ["verbose"]}, 1.0),
        ("a, b, a", "a", {"mode": "count"}, 2.0),
        ("aaaa", "aa", {"mode": "count"}, 2.0),
        ("", "a", {"mode": "count"}, 0.0),
        ("abc", "", {"mode": "count"}, 4.0),
        ("\ud800 \x00", r"\x00", {}, 1.0),
    ],
)
def test_modes(text, pattern, options, value):
    assert score(text, pattern, **options).value == value


@pytest.mark.parametrize(
    ("text", "pattern", "options", "value"),
    [
        ("x = 42", r"= (\d+)", {"group": 1}, 1.0),
        ("x = 41", r"= (\d+)", {"group": 1}, 0.0),
        ("x = 42", r"= (?P<it>\d+)", {"group": "it"}, 1.0),
        ("x =  42 ", "=(.*)", {"group": 1}, 1.0),
        ("42", r"\d+", {"group": 0}, 1.0),
        ("no", r"= (\d+)", {"group": 1}, 0.0),
        ("x = 42", r"x(\?)? = \d+", {"group": 1}, 0.0),  # the group took no part
        ("Answer: 42", r"Answer: (\d+)", {"group": 1, "mode": "fullmatch"}, 1.0),
        # the last match decides
        ("= 41, = 42", r"= (\d+)", {"group": 1}, 1.0),
        ("= 42, = 43", r"= (\d+)", {"group": 1}, 0.0),
    ],
)
def test_group(text, pattern, options, value):
    assert score(text, pattern, **options).value == value


def test_what_the_group_matched_is_the_answer():
    assert score("= 41, =  43 ", r"= +(\d+)", group=1).info == {"answer": "43"}
    assert score("no", r"= (\d+)", group=1).info == {"answer": None}
    assert score("x = 42", r"= (\d+)").info == {}


def test_a_group_needs_an_answer():
    found = score("42", r"(\d+)", None, group=1)
    assert found.status is ScoreStatus.ERROR
    assert "needs the column 'answer'" in str(found.error)
    assert score("42", r"(\d+)", None).value == 1.0


@pytest.mark.parametrize("mode", ["search", "fullmatch", "count"])
def test_a_pattern_that_runs_away_is_a_timeout(mode):
    # The alternation has a number of ways exponential in the a's, and all of them fail.
    found = score("a" * 60 + "b", "(?:a|aa)+$", mode=mode, max_seconds=0.05)
    assert found.status is ScoreStatus.TIMEOUT
    assert found.value is None
    assert "the pattern took more than 0.05 s on 61 characters" in str(found.error)


def test_a_group_runs_away_too():
    found = score("a" * 60 + "b", "(?:a|aa)+$", group=0, max_seconds=0.05)
    assert found.status is ScoreStatus.TIMEOUT


def test_what_it_declares_follows_from_its_options():
    assert Regex(pattern="a").range == (0.0, 1.0)
    counting = pickle.loads(pickle.dumps(Regex(pattern="a", mode="count")))
    assert counting.range == (0.0, math.inf)
    assert (Regex(pattern="(a)", group=1).needs, Regex(pattern="(a)").needs) == (("answer",), ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "("}, r"the pattern '\(' is wrong: missing \) at position 1"),
        ({"pattern": "(" * 90}, r"\.\.\.' is wrong"),
        ({"pattern": "(a)", "group": 2}, r"no group 2 \(groups: 0 to 1\)"),
        ({"pattern": "(?P<b>a)", "group": "c"}, r"no group 'c' \(groups: 0 to 1, 'b'\)"),
        ({"pattern": "(a)", "group": 1, "mode": "count"}, "mode count takes no group"),
        ({"pattern": "a", "max_seconds": 0}, "option 'max_seconds'"),
        ({"pattern": "a", "flags": ["dotal"]}, "option 'flags.0'"),
        ({}, "option 'pattern'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ConfigError, match=message):
        build_reward(Regex, options)
