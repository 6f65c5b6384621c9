"""GSM8K with a calculator: the calculator, the gold transcript, and what is rewarded."""

import contextlib
import itertools
import json
import pickle
import re
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_envs.calculator import MAX_CHARS, calculate, calculator
from rlgym_llm_envs.gsm8k_calculator import Gsm8kCalculatorEnv
from rlgym_llm_envs.math_gsm8k import MathGsm8kEnv

from rlgym_llm import UserError
from rlgym_llm.tools.parse import ToolStyle
from rlgym_llm.types import Task

ROW = {
    "question": "Natalia sold clips to 48 friends in April and half as many in May. How many?",
    "answer": (
        "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
        "Natalia sold 48+24 = <<48+24=72>>72 clips altogether.\n#### 72"
    ),
}


@pytest.fixture
def env(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    env = Gsm8kCalculatorEnv(data=path)
    env.reset(seed=0)
    return env


def play_gold(env, index):
    """The turns, what was replied, and the last step."""
    env.reset(seed=0, options={"index": index})
    turns, replies = [], []
    for _ in itertools.count():
        turns.append(env.gold_action(env.task))
        step = env.step(turns[-1])
        replies += [message.content for message in step[4]["reply"]]
        if step[2] or step[3]:
            return turns, replies, step
    return None


def call(expression):
    arguments = json.dumps({"expression": expression})
    return f'<tool_call>\n{{"name": "calculator", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("48/2", "24"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("10 - 4 - 3", "3"),
        ("100 / 10 / 2", "5"),
        ("1/3 * 3", "1"),  # exact within
        ("0.1 + 0.2", "0.3"),
        (".5 * 3", "1.5"),
        ("1/3", "0.333333"),
        ("-2/3", "-0.666667"),
        ("1/1024", "0.0009765625"),
        ("5 - 7", "-2"),
        ("--5 * -2", "-10"),
        ("1,200 * 2", "2400"),
        ("$1,200.50 + $.5", "1201"),
        ("20% * 50", "10"),
        ("50 + 10%", "50.1"),
        ("7 % 4", "3"),
        ("-7 % (4)", "1"),
        ("7 // 2", "3"),
        ("2 ^ 3 ^ 2", "512"),
        ("2 ** -2", "0.25"),
        ("-2 ** 2", "-4"),
        ("(-1) ** 999999999", "-1"),
        ("0 ** 999999", "0"),
        ("6 × 7 ÷ 2 − 1", "20"),
        ("  3  ", "3"),
    ],
)
def test_the_calculator(expression, result):
    assert calculator(expression) == result


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "expected at the end"),
        ("2 +", "expected at the end"),
        ("* 2", r"expected before '\*'"),
        ("2 3", "an operator is expected before '3'"),
        ("2(3)", r"an operator is expected before '\('"),
        ("(2", "a bracket is not closed"),
        ("2)", r"an operator is expected before '\)'"),
        ("1/0", "a division by zero"),
        ("1 // (2 - 2)", "a division by zero"),
        ("0 ** -1", "a division by zero"),
        ("2 ** 0.5", "an exponent is a whole number"),
        ("9 ** 9 ** 9", "the number is too large"),
        ("9 ** 999999999999", "the number is too large"),
        ("*".join(["9" * 99] * 2), None),
        ("(" * 60 + "1" + ")" * 60, "too deep"),
        ("^".join("2" * 60), "too deep"),
        ("48/2 = 24", "'=' is none of digits"),
        ("x + 1", "'x' is none of digits"),
        ("__import__('os')", "'_' is none of digits"),
        ("1" * 201, f"201 characters, over {MAX_CHARS}"),
        ("٣", "is none of digits"),
    ],
)
def test_what_is_no_expression(expression, message):
    if message is None:
        assert calculate(expression) == int("9" * 99) ** 2
        return
    with pytest.raises(ValueError, match=message):
        calculate(expression)


@given(
    numbers=st.lists(st.integers(0, 999), min_size=1, max_size=8),
    signs=st.lists(st.sampled_from("+-*"), min_size=7, max_size=7),
)
def test_the_calculator_agrees_with_python(numbers, signs):
    expression = str(numbers[0])
    for sign, number in zip(signs, numbers[1:], strict=False):
        expression += f" {sign} {number}"
    assert calculate(expression) == eval(expression)  # of our own making
    assert calculator(expression) == str(eval(expression))


@given(st.text(alphabet="0123456789.,+-*/%^() $=x\n٣", max_size=220))
def test_the_calculator_only_ever_raises_value_error(text):
    with contextlib.suppress(ValueError):
        assert isinstance(calculate(text), Fraction)


def test_the_gold_transcript_calls_where_the_solution_is_marked(env):
    turns, replies, step = play_gold(env, 0)
    assert turns == [
        f"Natalia sold 48/2 =\n{call('48/2')}",
        f"24 clips in May.\nNatalia sold 48+24 =\n{call('48+24')}",
        "72 clips altogether.\n#### 72",
    ]
    assert replies == ["24", "72"]
    assert step[1:4] == (1.3, True, False)
    assert step[4]["components"] == {"math": 1.0, "format": 1.0, "calculator": 1.0}
    assert (step[4]["num_tool_calls"], step[4]["num_tool_errors"]) == (2, 0)


def test_the_prompt_shows_one_call(env):
    observation, _ = env.reset(seed=0)
    assert [message.role for message in observation] == ["system", "user"]
    assert observation[0].content.endswith(call("12 * (3 + 4.5)"))
    assert observation[1].content == ROW["question"]


@pytest.mark.parametrize(
    ("turns", "components"),
    [
        (["#### 72"], {"math": 1.0, "format": 1.0, "calculator": 0.0}),
        ([call("48 +"), "#### 72"], {"math": 1.0, "format": 1.0, "calculator": 0.0}),
        ([call("48 + 24"), "#### 7"], {"math": 0.0, "format": 1.0, "calculator": 1.0}),
        ([call("48 + 24"), "72"], {"math": 0.0, "format": 0.0, "calculator": 1.0}),
        ([call("48 + 24") + "\n#### 72", "So."], None),
        (["colourless green ideas"], {"math": 0.0, "format": 0.0, "calculator": 0.0}),
    ],
)
def test_what_is_rewarded(env, turns, components):
    for turn in turns:
        step = env.step(turn)
    assert step[2]
    if components is None:
        assert step[4]["components"]["format"] == 0.0
    else:
        assert step[4]["components"] == components


def test_a_wrong_expression_is_answered(env):
    assert env.step(call("48 +"))[4]["reply"][0].content == (
        "error: a number or a bracket is expected at the end"
    )
    said = env.step('<tool_call>{"name": "calculator", "arguments": {"expr": "1"}}</tool_call>')[4]
    assert "argument 'expression' is missing" in said["reply"][0].content


@pytest.mark.parametrize("style", get_args(ToolStyle))
@pytest.mark.parametrize("split", ["train", "val"])
def test_gold_earns_the_maximum_on_starter_problems(style, split):
    env = Gsm8kCalculatorEnv(source="starter", split=split, tool_style=style)
    for index in range(25):
        turns, replies, step = play_gold(env, index)
        assert step[1] == env.gold_reward == 1.3
        assert len(turns) == len(replies) + 1 >= 2
        assert all(re.fullmatch(r"[0-9.]+", reply) for reply in replies)


def test_gold_keeps_within_the_calls_and_calls_at_least_once(env):
    env.max_calls = 1
    assert len(play_gold(env, 0)[0]) == 2
    bare = Task(prompt=env.tasks[0].prompt, answer="7")
    env.reset(seed=0, options={"task": bare})
    assert env.gold_action(bare) == call("7")
    env.step(env.gold_action(bare))
    assert env.gold_action(bare) == "#### 7"
    assert env.step("#### 7")[1] == 1.3


def test_the_problems_are_those_of_math_gsm8k():
    env = Gsm8kCalculatorEnv(source="starter", num_problems=5, seed=2)
    plain = MathGsm8kEnv(source="starter", num_problems=5, seed=2)
    assert [env.tasks[i] for i in range(5)] == [plain.tasks[i] for i in range(5)]


def test_an_episode_branches_and_pickles(env):
    env.step(call("48/2"))
    clone, pickled = env.clone(), pickle.loads(pickle.dumps(env))
    step = env.step("#### 72")
    assert clone.step("#### 72") == pickled.step("#### 72") == step


def test_arguments_that_contradict_each_other_are_refused():
    with pytest.raises(UserError, match="give one of them"):
        Gsm8kCalculatorEnv(source="starter", data="a.jsonl")


@pytest.mark.data
def test_gold_earns_the_maximum_on_gsm8k(test_data):
    env = Gsm8kCalculatorEnv(data=test_data / "data" / "gsm8k" / "test.jsonl", split="val")
    num_calls = 0
    for index in range(0, len(env.tasks), 7):
        _, replies, step = play_gold(env, index)
        assert step[1] == 1.3, env.tasks[index]
        num_calls += len(replies)
    assert num_calls > 500
