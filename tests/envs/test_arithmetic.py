"""Arithmetic: five levels, worked out in the open, and no reward for repeating the sum."""

import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from rlgym_llm_envs.arithmetic import ArithmeticEnv
from rlgym_llm_envs.exact_expression import read_expression
from rlgym_llm_envs.prompts import SYSTEM_PROMPT

from rlgym_llm.call_signature import check_arguments
from rlgym_llm.check_env import check_env
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.types import Message, Task

sys.path.insert(0, str(Path(__file__).parent))
from problem_checks import check_gold_and_garbage, check_other_process, check_splits, play


def expression(task):
    return re.fullmatch(r"What is (.+)\?", task.prompt[-1].content)[1]


def garbage(task):
    answer = int(task.answer)
    return [
        "",
        "colourless green ideas sleep furiously",
        f"#### {answer + 1}",
        f"#### {expression(task)}",  # the question again
        f"the answer might be {answer}",  # not marked
        f"#### {answer}\n#### {answer + 1}",
        "naïve π≤4 中文 😀\x00 #### ½π",
    ]


@pytest.mark.parametrize("level", [None, 1, 5])
def test_gold_earns_the_maximum_and_garbage_nothing(level):
    env = ArithmeticEnv(level=level)
    check_gold_and_garbage(env, maximum=1.2, component="math", garbage=garbage)


def test_answers_are_right():
    # Worked out by another evaluator than the one that drew them.
    env = ArithmeticEnv()
    for index in range(500):
        task = env.tasks[index]
        assert read_expression(expression(task)).value == Fraction(task.answer)
        for step in task.info["solution"].splitlines()[:-1]:
            left, _, right = step.rpartition(" = ")
            numbers = re.findall(r"(?<![\d ])-?\d+|(?<= )-\d+|\d+", left)
            assert len(numbers) == 2, step
            sign = re.search(r" ([-+*]) ", left)[1]
            one, other = map(int, left.split(f" {sign} "))
            assert {"+": one + other, "-": one - other, "*": one * other}[sign] == int(right)


@pytest.mark.parametrize(
    ("level", "shape"),
    [
        (1, r"\d [+-] \d"),
        (2, r"\d\d [+-] \d\d"),
        (3, r"\d{1,2} \* \d{1,2}"),
        (4, r"\d+ [+-] \d+ \* \d+|\d+ \* \d+ [+-] \d+"),
        (5, r"\(\d+ [+-] \d+\) \* \(\d+ [+-] \d+\)"),
    ],
)
def test_the_levels(level, shape):
    env = ArithmeticEnv(level=level)
    for index in range(100):
        assert env.tasks[index].info["level"] == level
        assert re.fullmatch(shape, expression(env.tasks[index]))


def test_levels_take_turns():
    levels = [ArithmeticEnv().tasks[i].info["level"] for i in range(6)]
    assert levels == [1, 2, 3, 4, 5, 1]
    env = ArithmeticEnv(level=[4, 2])
    assert [env.tasks[i].info["level"] for i in range(3)] == [4, 2, 4]


def test_a_worked_solution():
    env = ArithmeticEnv()
    task = Task(prompt=(Message(role="user", content="What is 2 + 3?"),), answer="5")
    env.reset(options={"task": task})
    assert env.gold_action(task) == "#### 5"
    assert env.step("#### 5")[1] == 1.2
    assert env.tasks[4].prompt == (
        Message(role="system", content=SYSTEM_PROMPT),
        Message(role="user", content="What is (20 + 20) * (7 - 18)?"),
    )
    # 20 + 20 = 40, 7 - 18 = -11, 40 * -11 = -440
    assert env.gold_action(env.tasks[4]) == (
        "20 + 20 = 40\n7 - 18 = -11\n40 * -11 = -440\n#### -440"
    )
    assert play(env, 4, "so #### -440")[0] == 1.0, "right, without the format"


def test_splits_and_processes():
    check_splits(ArithmeticEnv)
    check_other_process(ArithmeticEnv, seed=4, level=[2, 5])


@pytest.mark.parametrize("style", ["chat", "string", "raw"])
def test_the_contract_is_kept(style):
    system = {"system_prompt": ""} if style == "raw" else {}
    check_env(ArithmeticEnv(split="val", prompt_style=style, **system))


def test_prompts_as_text():
    assert ArithmeticEnv(prompt_style="raw", system_prompt="").tasks[0].prompt == "What is 2 + 3?"
    text = ArithmeticEnv(prompt_style="string", system_prompt="", few_shot=1).tasks[0].prompt
    assert re.fullmatch(
        r"Question: What is .+\?\nAnswer: .+\n#### \d+\n\nQuestion: What is 2 \+ 3\?\nAnswer:", text
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 6}, "level must be one or several of 1 to 5, got 6"),
        ({"level": []}, "level must be one or several of 1 to 5"),
        ({"level": [1, True]}, "level must be one or several of 1 to 5"),
        ({"split": "dev"}, "split must be one of train, val, test, got 'dev'"),
        ({"num_problems": 0}, "num_problems must be 1 or more, got 0"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"few_shot": -1}, "few_shot must be 0 or more, got -1"),
        ({"prompt_style": "raw"}, "takes no system_prompt"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        ArithmeticEnv(**options)


def test_a_data_file_has_no_meaning_here():
    with pytest.raises(ConfigError, match="no argument 'data'"):
        check_arguments("environment 'arithmetic'", ArithmeticEnv, {"data": "x.jsonl"})
