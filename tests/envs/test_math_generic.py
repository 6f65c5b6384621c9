r"""math-generic: any file with a prompt and an answer, golds of many kinds, replies in a box."""

import json
import math
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from rlgym_llm_envs.math_generic import MathGenericEnv
from rlgym_llm_envs.prompts import BOXED_PROMPT

from rlgym_llm.check_env import check_env
from rlgym_llm.errors import DataError, UserError
from rlgym_llm.types import Message

sys.path.insert(0, str(Path(__file__).parent))
from problem_checks import check_gold_and_garbage, check_other_process, check_splits, play

MATH = [  # in the layout of MATH
    {
        "problem": "What is $\\frac{1}{2} + \\frac{1}{3}$?",
        "level": "Level 1",
        "type": "Prealgebra",
        "solution": "It is $\\frac{3}{6} + \\frac{2}{6} = \\boxed{\\frac{5}{6}}$.",
    },
    {
        "problem": "Solve $x^2 = 4$.",
        "level": "Level 2",
        "type": "Algebra",
        "solution": "$x = \\boxed{-2, 2}$",
    },
]


@pytest.fixture
def write(tmp_path):
    def to_file(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return to_file


def starter(**options):
    return MathGenericEnv(source="starter", **options)


def garbage(task):
    expressions = re.findall(r"\$(.+?)\$", task.prompt[-1].content)
    return [
        "",
        "colourless green ideas sleep furiously",
        "\\boxed{}",
        f"\\boxed{{{task.answer} + 1}}",
        f"it may be {task.answer}",
        f"\\boxed{{{task.answer}}} or rather \\boxed{{12345}}",
        *(f"\\boxed{{{part}}}" for part in expressions if "=" in part),
    ]


def test_gold_earns_the_maximum_and_garbage_nothing():
    check_gold_and_garbage(starter(), maximum=1.2, component="math", garbage=garbage)


def test_starter_answers_are_right():
    env = starter()
    for index in range(300):
        task = env.tasks[index]
        numbers = list(map(int, re.findall(r"-?\d+", task.prompt[-1].content)))
        answer = task.answer
        if index % 3 == 0:
            a, b, c = numbers
            assert a * int(answer) + b == c
        elif index % 3 == 1:
            a, b = numbers
            square = int(re.sub(r"\D", "", answer)) ** (1 if "sqrt" in answer else 2)
            assert square == a * a + b * b
            assert ("sqrt" in answer) == (math.isqrt(square) ** 2 != square)
        else:
            a, b = numbers
            top, *bottom = map(int, re.findall(r"\d+", answer))
            assert 1 / Fraction(top, *bottom) == Fraction(1, a) + Fraction(1, b)


def test_splits_and_processes():
    check_splits(starter)
    check_other_process(MathGenericEnv, source="starter", seed=4)


def test_rows_in_the_layout_of_math(write):
    env = MathGenericEnv(data=write(*MATH), columns={"prompt": "problem", "answer": "solution"})
    task = env.tasks[0]
    assert task.prompt == (
        Message(role="system", content=BOXED_PROMPT),
        Message(role="user", content=MATH[0]["problem"]),
    )
    assert task.info["level"] == "Level 1"
    assert task.info["type"] == "Prealgebra"
    for reply, reward in [
        ("so \\boxed{5/6}", 1.2),  # math 1 + 0.2 for the one box
        ("#### 5/6", 1.0),  # right, not in a box
        ("so \\boxed{1/6}", 0.2),
        ("about 0.83", 0.0),
        (env.gold_action(task), 1.2),
    ]:
        assert play(env, 0, reply)[0] == reward, reply
    assert play(env, 1, "\\boxed{2, -2}")[0] == 1.2
    assert play(env, 1, "\\boxed{2}")[0] == 0.2


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (18, "18", "19"),
        (0.5, "\\frac{1}{2}", "2"),
        ("1,234", "1234", "1.234"),
        ("\\frac{3}{4}", "0.75", "0.7"),
        ("x^2 + 2x + 1", "(x+1)^2", "x^2 + 1"),
        ("5 + 2 = 7\n#### 7", "7", "5"),
        ("(1, 2]", "(1,2]", "[1,2]"),
    ],
)
def test_golds_of_many_kinds(write, answer, right, wrong):
    env = MathGenericEnv(data=write({"prompt": "Which?", "answer": answer}))
    assert play(env, 0, f"\\boxed{{{right}}}")[1]["math"] == 1.0
    assert play(env, 0, f"\\boxed{{{wrong}}}")[1]["math"] == 0.0


def test_a_gold_that_cannot_be_read_is_an_error_and_never_a_reward(write):
    env = MathGenericEnv(data=write({"prompt": "Which?", "answer": "\\frac{1}{0}"}))
    env.reset(options={"index": 0})
    _, reward, _, _, info = env.step("\\boxed{1}")
    assert (reward, info["unscored"]) == (0.0, True)
    assert "cannot be right: a division by zero" in info["score"].components["math"].error


def test_few_shot_shows_solutions(write):
    columns = {"prompt": "problem", "answer": "solution"}
    env = MathGenericEnv(data=write(*MATH), columns=columns, few_shot=1, prompt_style="string")
    assert env.tasks[0].prompt == (
        f"{BOXED_PROMPT}\n\nQuestion: {MATH[0]['problem']}\nAnswer: {MATH[0]['solution']}\n\n"
        f"Question: {MATH[1]['problem']}\nAnswer:"
    )
    bare = MathGenericEnv(
        data=write({"prompt": "2 + 2?", "answer": 4}, {"prompt": "q", "answer": 1}), few_shot=1
    )
    assert bare.tasks[0].prompt[2].content == "\\boxed{4}"


def test_the_contract_is_kept(write):
    check_env(starter(split="val"))
    check_env(MathGenericEnv(data=write({"prompt": "2 + 2?", "answer": 4})))


def test_no_data_is_one_line_with_the_ways_out():
    with pytest.raises(UserError, match=r"give a data file with --data\.train, or take the drawn"):
        MathGenericEnv()


def test_bad_rows_name_file_and_line(write):
    path = write({"prompt": "2 + 2?", "answer": 4}, {"prompt": "q", "answer": [1]})
    with pytest.raises(DataError, match=r"rows.jsonl:2: column 'answer' must be text, a number"):
        MathGenericEnv(data=path)
    env = MathGenericEnv(data=path, on_bad_line="skip")
    assert (len(env.tasks), len(env.tasks.rejects)) == (1, 1)
