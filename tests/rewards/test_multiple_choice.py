from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.choice_list import choice_list
from rlgym_llm_rewards.multiple_choice import MultipleChoice

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn

PROMPT = (
    "Which is the capital of Italy, the country of pasta?\n"
    "A) Oslo\nB) Rome\nC) Paris\nD) New York City\n"
)
CITIES = Task(
    prompt=PROMPT, answer="B", info={"choices": ["Oslo", "Rome", "Paris", "New York City"]}
)
LETTERS = Task(prompt=PROMPT, answer="B")


def score(text: str, task: Task = CITIES, **options: Any) -> Score:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
    reward = build_reward(MultipleChoice, options)
    return score_rollouts(reward, [rollout], RewardContext())[0]


BY_LETTER = [
    "B",
    "b",
    "(B)",
    "B.",
    "**B**",
    "The answer is B.",
    "The answer is: **B) Rome**.",
    "Answer: (B) Rome",
    r"\boxed{B}",
    r"\boxed{\text{(B)}}",
    r"\boxed{B. Rome}",
    "so\n#### B",
    "<answer>B</answer>",
    "答案：Ｂ",
    "答案是B。",
    "La réponse est B.",
    "So it's B, not A.",
    "A is wrong, C is wrong, D is wrong, so B.",
    "I choose option B",
    "The answer is A. Wait, no. The answer is B.",
    "<think>A? No.</think>B",
    PROMPT + "Answer: B",
]


@pytest.mark.parametrize("text", BY_LETTER)
def test_the_right_letter(text):
    assert score(text).value == 1.0
    assert score(text, LETTERS).value == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "Rome",
        "rome.",
        "The capital is Rome.",
        "The answer is Rome.",
        r"\boxed{\text{Rome}}",
        "<answer>Rome</answer>",
        "It is not Oslo.\nThe capital of Italy is Rome.",
    ],
)
def test_the_right_text(text):
    found = score(text)
    assert found.value == 1.0
    assert found.info["answer"] == found.info["chosen"] == "B"
    assert score(text, LETTERS).value == 0.0  # nobody told it what B says


SET_ASIDE = [
    "{b}, not {a}",
    "{b}, not {a}.",
    "{b} and not {a}",
    "{b} rather than {a}",
    "{b} instead of {a}",
    "<think>{a}? No, not {b}.</think>{b}, not {a}",
    "{b}, not {a} or {c}",
    "{b}, not {a}, not {c}",
    "{b}. Not {a}.",
    "not {a} but {b}",
    "Not {a}, but {b}.",
    "It is {b}, not {a}.",
    "The answer is {b}, not {a}.",
    "The answer is {b} (not {a}).",
    "The answer is not {a} but {b}.",
    r"\boxed{{{b}, not {a}}}",
    "<answer>{b}, not {a}</answer>",
    "#### {b}, not {a}",
]


@pytest.mark.parametrize("pattern", SET_ASIDE)
def test_a_choice_that_is_set_aside_is_not_chosen(pattern):
    for a, b, c in ("A", "B", "C"), ("Oslo", "Rome", "Paris"), ("A) Oslo", "B) Rome", "C) Paris"):
        assert score(pattern.format(a=a, b=b, c=c)).info["named"] == ["B"]
        assert score(pattern.format(a=b, b=a, c=c)).info["named"] == ["A"]
        assert score(pattern.format(a=b, b=a, c=c)).value == 0.0
    assert score(pattern.format(a="A", b="B", c="C"), LETTERS).value == 1.0


@pytest.mark.parametrize("text", ["I choose {} instead of {}", "I choose {} over {}."])
def test_the_second_of_two_letters_is_not_the_last_word(text):
    assert score(text.format("B", "A")).info["named"] == ["B"]
    assert score(text.format("A", "B")).info["named"] == ["A"]


@pytest.mark.parametrize(
    "text",
    [
        "{b}, not only {a}",
        "not only {b} but {a}",
        "not {b}, not {a}",
        "neither {b} nor {a}",
        "{b} and {a}, not {c}",
        r"\boxed{{not {b}}}",
        "<answer>not {b}</answer>",
        "not {b} but {a}",
        "It is {a}, not {b}.",
    ],
)
def test_what_sets_nothing_aside_or_everything_earns_nothing(text):
    for a, b, c in [("A", "B", "C"), ("Oslo", "Rome", "Paris")]:
        assert score(text.format(a=a, b=b, c=c)).value == 0.0


def test_a_choice_may_itself_set_something_aside():
    task = Task(prompt="?", answer="B", info={"choices": ["red", "red, not blue", "blue"]})
    assert score("red, not blue", task).value == 1.0
    assert score("It is red, not blue", task).value == 1.0
    assert score("red", task).value == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "E",
        "I don't know",
        "A or B",
        "A, B, C, D",
        "A B C D",
        "ABCD",
        "A/B/C/D",
        "all of the above",
        "The answer is A/B/C/D",
        "Either A or B",
        "The answer is B or maybe C",
        "Rome or Paris",
        "Oslo, Rome, Paris, New York City",
        "A) Oslo\nB) Rome",
        "A) Oslo, B) Rome",
        "A) Oslo\nC) Paris\n\nB) Rome",
        "Answer: A) Oslo B) Rome",
        "Answer: B) Rome or C) Paris",
        "<answer>A, B</answer>",
        r"\boxed{A}\boxed{B}",
        r"\boxed{A} \boxed{C} \boxed{B}",
        "Answer: A\nAnswer: C\nAnswer: B",
        PROMPT,
        "(B) Paris",
        "The answer is B: Paris",
        "A) Rome",
        "not B",
        "The answer is not B.",
        "It isn't B",
        "B is wrong",
        "It is not Rome.",
        "I doubt that it is Rome.",
        "It is Oslo. Rome is smaller",
        "<think>B</think>",
        "<think>The answer is B",
    ],
)
def test_what_decides_for_no_choice_or_another_earns_nothing(text):
    assert score(text).value == 0.0


def test_listing_choices_in_vain_is_told():
    found = score("Answer: A\nAnswer: C\nAnswer: B")
    assert found.info == {
        "answer": None,
        "chosen": None,
        "named": ["A", "B", "C"],
        "gold": "B",
        "where": "phrase",
    }


@pytest.mark.parametrize("gold", ["D", "(D)", "D) New York City", "new york city", "d"])
def test_what_the_gold_may_be(gold):
    task = Task(prompt=PROMPT, answer=gold, info=CITIES.info)
    assert score("D", task).value == 1.0
    assert score("It is New York City.", task).value == 1.0
    assert score("A", task).value == 0.0


def test_the_gold_as_a_position():
    assert score("C", Task(prompt="?", answer="2", info=CITIES.info), index_base=0).value == 1.0
    assert score("B", Task(prompt="?", answer="2", info=CITIES.info), index_base=1).value == 1.0


@pytest.mark.parametrize(
    ("gold", "options"),
    [
        ("E", {}),
        ("Berlin", {}),
        ("", {}),
        ("2", {}),
        ("4", {"index_base": 0}),
        ("0", {"index_base": 1}),
        ("²", {"index_base": 1}),
        ("x" * 5000, {}),
    ],
)
def test_a_gold_that_is_no_choice_is_an_error(gold, options):
    found = score("B", Task(prompt="?", answer=gold, info=CITIES.info, id="t7"), **options)
    assert found.status is ScoreStatus.ERROR
    assert "of task t7 is none of the choices A, B, C, D, nor one's text" in str(found.error)


@pytest.mark.parametrize(
    "column",
    [
        ["tin", "gold"],
        {"A": "tin", "B": "gold"},
        {"a": "tin", "b": "gold"},
        {"label": ["A", "B"], "text": ["tin", "gold"]},
    ],
)
def test_columns(column):
    task = Task(prompt="?", answer="B", info={"options": column})
    assert score("gold", task, choices="options").value == 1.0
    assert score("(B)", task, choices="options").value == 1.0
    assert score("tin", task, choices="options").value == 0.0


def test_columns_that_cannot_be_read():
    missing = score("B", choices="options")
    wrong = score("B", Task(prompt="?", answer="B", info={"choices": "Oslo"}))
    uneven = score(
        "B", Task(prompt="?", answer="B", info={"choices": {"label": ["A"], "text": ["x", "y"]}})
    )
    assert "needs the column 'options'" in str(missing.error)
    assert "choices are a list or a mapping, not a str" in str(wrong.error)
    assert "there are 2 choices and 1 labels for them" in str(uneven.error)
    lone = score("B", Task(prompt="?", answer="B", info={"choices": ["Oslo"]}))
    twice = score("B", Task(prompt="?", answer="B", info={"choices": {"a": "x", "A": "y"}}))
    assert "there is but one choice, 'Oslo'; give two or more" in str(lone.error)
    assert "two choices have the label 'A'" in str(twice.error)


def test_numbers_are_compared_as_numbers():
    task = Task(prompt="?", answer="C", info={"choices": ["-5", "0.5", "5"]})
    assert [score(text, task).value for text in ("5.0", r"\boxed{5}", "-5", "−5", "0.5")] == [
        1.0,
        1.0,
        0.0,
        0.0,
        0.0,
    ]


def test_signs_are_no_words():
    task = Task(prompt="?", answer="A", info={"choices": ["x > 2", "y"]})
    assert score("x > 2", task).value == 1.0
    assert score("x < 2", task).value == 0.0


def test_a_choice_of_the_prompt_may_be_repeated_in_full():
    prompt = "Which is true of all?\n(A) The quick fox jumps.\n(B) The lazy dog sleeps all day.\n"
    task = Task(prompt=prompt, answer="B")
    assert score("The answer is (B) The lazy dog sleeps all day.", task).value == 1.0
    assert score("B) The lazy dog sleeps all day.", task).value == 1.0
    assert score(prompt, task).value == 0.0


def test_strict_takes_marked_answers_only():
    assert score("Rome", extraction="strict").value == 0.0
    assert score("It is B", extraction="strict").value == 0.0
    assert score("The answer is Rome.", extraction="strict").value == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"choices": []}, "there are 0 choices"),
        ({"choices": list("abcdefghijk")}, "11 choices and 10 labels"),
        ({"choices": ["x", "y"], "num_choices": 2}, "not both"),
        ({"choices": ["x"]}, "there is but one choice, 'x'; give two or more"),
        ({"choices": ["x", "y", "x"]}, "'x' is given twice"),
        ({"choices": ["Oslo", " oslo."]}, "' oslo.' is given twice"),
        ({"num_choices": 1}, "option 'num_choices'"),
        ({"index_base": 2}, "option 'index_base'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ConfigError, match=message):
        build_reward(MultipleChoice, options)


def test_num_choices_bounds_the_letters():
    assert score("C", Task(prompt="?", answer="B"), num_choices=2).info["named"] == []
    found = score("C", Task(prompt="?", answer="C"), num_choices=2)
    assert found.status is ScoreStatus.ERROR


@given(
    st.lists(st.sampled_from("ABCD"), min_size=2, max_size=6), st.sampled_from([", ", " or ", "/"])
)
def test_a_list_of_letters_chooses_only_what_it_repeats(letters, joint):
    expected = float(set(letters) == {"B"})
    assert score(joint.join(letters)).value == expected


@given(st.text(max_size=60))
def test_any_text_names_known_choices_only(text):
    known = choice_list(["Oslo", "Rome"])
    assert set(known.named(text)) <= {"A", "B"}
    assert score(text).value in (0.0, 1.0)
