from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.repetition import Repetition, count_ngrams, words

from rlgym_llm.check_reward import check_reward
from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn


def score(*texts: str, token_ids: tuple[int, ...] = (), **options: Any) -> Score:
    turns = tuple(
        Turn(new_prompt_token_ids=(), completion=Completion(text=text, token_ids=token_ids))
        for text in texts
    )
    task = Task(prompt="?", answer="5")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    return score_rollouts(build_reward(Repetition, options), [rollout], RewardContext())[0]


@pytest.mark.parametrize(
    ("text", "options", "value"),
    [
        # aba bab aba bab: 2 of 4 are distinct
        ("a b a b a b", {}, -0.5),
        ("A b a B A b", {}, -0.5),
        ("a b c d", {}, 0.0),
        # one 3-gram of 8
        ("no no no no no no no no no no", {}, -7 / 8),
        ("no no no no no no no no no no", {"max_penalty": 0.5}, -7 / 16),
        ("no no no no no no no no no no", {"max_penalty": 0.0}, 0.0),
        # 1-grams: a, b, c of 5
        ("a b a b c", {"ngram": 1}, -2 / 5),
        ("a b", {}, 0.0),
        ("", {}, 0.0),
        # every character of Han a unit: 3 distinct of 4
        ("我们我们我们", {"ngram": 3}, -1 / 2),
        ("今天天气很好", {}, 0.0),
        ("ไปไปไปไป", {"ngram": 2}, -5 / 7),
        # words with vowel signs stay whole: 1-grams
        ("हिन्दी हिन्दी भाषा", {"ngram": 1}, -1 / 3),
        # "aaaaaaaa" has 6 3-grams, all one
        ("a" * 8, {"unit": "chars"}, -5 / 6),
        ("abcabc", {"unit": "chars"}, -1 / 4),
        ("!!!!!!!!", {}, -5 / 6),
    ],
)
def test_values(text, options, value):
    found = score(text, **options)
    assert found.value == pytest.approx(value)
    assert str(found.value) != "-0.0"


def test_tokens():
    # 3-grams of 7 8 7 8 7: 787 878 787
    assert score("x", token_ids=(7, 8, 7, 8, 7), unit="tokens").value == pytest.approx(-1 / 3)
    missing = score("x", unit="tokens")
    assert missing.status is ScoreStatus.ERROR
    assert "no token ids; use unit: words" in str(missing.error)


def test_one_long_word_repeats_itself():
    assert score("a" * 10_000).value < -0.9
    assert score("我" * 10_000).value < -0.9


def test_turns_are_counted_together_and_no_ngram_crosses_them():
    # "a b c" twice: 2 3-grams, 1 distinct
    found = score("a b c", "a b c")
    assert found.value == -0.5
    assert found.info == {"distinct": 1, "total": 2}
    assert score("a b", "c a b").info == {"distinct": 1, "total": 1}


def test_range_follows_the_penalty():
    assert Repetition(max_penalty=2.0).range == (-2.0, 0.0)
    assert Repetition().range == (-1.0, 0.0)


@pytest.mark.parametrize("options", [{"ngram": 0}, {"max_penalty": -1.0}, {"unit": "lines"}])
def test_wrong_options(options):
    with pytest.raises(ConfigError, match=f"option '{next(iter(options))}'"):
        build_reward(Repetition, options)


def test_the_contract_on_tokens():
    scores = check_reward(Repetition, options={"unit": "tokens"})
    assert {found.value for found in scores} == {0.0}  # the ids of the probes all differ


@given(st.lists(st.text("ab", max_size=30), max_size=3), st.integers(1, 9))
def test_names_of_windows_count_what_windows_count(turns, ngram):
    windows = [turn[at : at + ngram] for turn in turns for at in range(len(turn) - ngram + 1)]
    assert count_ngrams(turns, ngram) == (len(set(windows)), len(windows))


@given(st.text(max_size=50))
def test_any_text_has_words(text):
    said, written = ("".join(parts).split() for parts in (words(text), text.casefold()))
    assert "".join(said) == "".join(written)
