"""Countdown: an evaluator that executes nothing, fair use of the numbers, and the answer tags."""

import ast
import operator
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_envs.countdown import CountdownEnv, answered_expression
from rlgym_llm_envs.exact_expression import is_solution, read_expression

from rlgym_llm.check_env import check_env
from rlgym_llm.errors import UserError
from rlgym_llm.types import Action, FinishReason, Message, Task

sys.path.insert(0, str(Path(__file__).parent))
from problem_checks import check_gold_and_garbage, check_other_process, check_splits, play

ASKED = (Message(role="user", content="Make 24."),)
GAME = Task(prompt=ASKED, info={"numbers": [1, 5, 5, 5], "target": 24})


@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("7", "7", (7,)),
        ("1 + 2 * 3", "7", (1, 2, 3)),
        ("(1+2)*3", "9", (1, 2, 3)),
        ("10 - 2 - 3", "5", (10, 2, 3)),  # from the left
        ("8 / 4 / 2", "1", (8, 4, 2)),
        ("8 / (4 / 2)", "4", (8, 4, 2)),
        ("5 * (5 - 1 / 5)", "24", (5, 5, 1, 5)),  # 1/5 stays exact
        ("2 − 3 × 4 ÷ 6", "0", (2, 3, 4, 6)),
        (" ((2)) ", "2", (2,)),
        ("2 * (3 - 5)", "-4", (2, 3, 5)),
    ],
)
def test_expressions_are_worked_out_exactly(text, value, numbers):
    assert read_expression(text) == (Fraction(value), numbers)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty or ends too early"),
        ("1 +", "empty or ends too early"),
        ("-5 + 3", "a number or a bracket is expected before '-'"),
        ("2 ** 3", "expected before '*'"),
        ("2 (3)", r"an operator is expected before '\('"),
        ("2 3", "an operator is expected before '3'"),
        ("()", r"expected before '\)'"),
        ("(1 + 2", "a bracket is not closed"),
        ("1 + 2)", "closed that was never opened"),
        ("1 / (2 - 2)", "a division by zero"),
        ("1 + 2 = 3", "'=' is none of digits"),
        ("1.5 + 2", "'.' is none of digits"),
        ("__import__('os')", "'_' is none of digits"),
        ("٣ + 1", "is none of digits"),
        ("1\x00+ 2", "is none of digits"),
        ("9" * 201, "201 characters, over 200"),
        ("(" * 200, "ends too early"),
    ],
)
def test_what_is_no_expression_is_refused_in_words(text, reason):
    with pytest.raises(ValueError, match=reason):
        read_expression(text)


TREES = st.recursive(
    st.integers(0, 99).map(str),
    lambda part: st.tuples(part, st.sampled_from("+-*/"), part).map(" ".join).map("({})".format),
    max_leaves=8,
)
OPERATIONS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv"}


def by_python(node):
    """The value of a parsed expression, by Python's own grammar."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    left, right = by_python(node.left), by_python(node.right)
    return getattr(operator, OPERATIONS[type(node.op)])(left, right)


@given(st.lists(TREES, min_size=1, max_size=3), st.sampled_from("+-*/"))
def test_the_value_is_the_one_that_python_gives(parts, sign):
    text = f" {sign} ".join(parts)
    if len(text) > 200:
        return
    try:
        right = by_python(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by zero"):
            read_expression(text)
    else:
        assert read_expression(text).value == right


@given(st.text(alphabet="0123456789+-*/() ×x=", max_size=220))
def test_any_text_is_read_or_refused(text):
    try:
        value, numbers = read_expression(text)
    except ValueError:
        return
    assert numbers
    assert isinstance(value, Fraction)


@pytest.mark.parametrize(
    ("expression", "use_all", "is_right"),
    [
        ("5 * (5 - 1 / 5)", True, True),
        ("5 * 5 - 1", False, True),
        ("5 * 5 - 1", True, False),  # one 5 is left over
        ("24", False, False),  # not given
        ("5 * 5 - 5 / 5 + 5 - 5", False, False),  # six 5s
        ("5 * 5", False, False),
    ],
)
def test_numbers_are_used_at_most_once(expression, use_all, is_right):
    assert is_solution(expression, [1, 5, 5, 5], 24, use_all=use_all) is is_right


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>1 + 2</answer>", "1 + 2"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<think><answer>1</answer></think>", None),
        ("<think>a</think><answer>2</answer>", "2"),
        ("<think>never closed <answer>1</answer>", None),
        ("<answer>1", None),
        ("1 + 2", None),
        ("<answer>" * 100_000, None),
    ],
)
def test_the_last_answer_behind_the_thinking_counts(text, found):
    assert answered_expression(text) == found


def garbage(task):
    numbers, target = task.info["numbers"], task.info["target"]
    return [
        "",
        "colourless green ideas sleep furiously",
        f"<answer>{target}</answer>",
        f"<answer>{target} + {numbers[0]} - {numbers[0]}</answer>",
        f"<answer>{task.info['solution']} = {target}</answer>",
        f"<answer>({task.info['solution']}) * {numbers[0]} / {numbers[0]}</answer>",  # twice
        f"<think><answer>{task.info['solution']}</answer></think>",
        task.info["solution"],  # no tags
        f"<answer>__import__('os') or {target}</answer>",
    ]


@pytest.mark.parametrize("options", [{}, {"num_numbers": [5, 6]}, {"use_all": True}])
def test_gold_earns_the_maximum_and_garbage_nothing(options):
    env = CountdownEnv(**options)
    check_gold_and_garbage(env, maximum=1.1, component="env", garbage=garbage)
    assert CountdownEnv.gold_reward == 1.1


def test_a_game_by_hand():
    env = CountdownEnv()
    for reply, reward in [
        ("5 * 5 is 25.\n<answer>5 * 5 - 1</answer>", 1.1),
        ("<answer>5 * 5 - 1</answer> and more", 1.0),
        ("<answer>5 * 5</answer>", 0.1),
        ("5 * 5 - 1", 0.0),
    ]:
        env.reset(options={"task": GAME})
        assert env.step(reply)[1] == pytest.approx(reward), reply
    env.reset(options={"task": GAME})
    cut = env.step(Action(text="<answer>5 * 5 - 1</answer>", finish_reason=FinishReason.LENGTH))
    assert (cut[2], cut[3], cut[4]["env_reward"]) == (False, True, None), "not answered, not judged"
    env.reset(options={"task": Task(prompt=ASKED)})
    with pytest.raises(UserError, match="a countdown task has info numbers and target"):
        env.step("x")


def test_problems_are_as_promised():
    env = CountdownEnv(num_numbers=[3, 4, 6])
    for index in range(150):
        info = env.tasks[index].info
        assert len(info["numbers"]) == (3, 4, 6)[index % 3] == info["level"] + 2
        assert 10 <= info["target"] <= 999
        assert info["target"] not in info["numbers"]
        assert is_solution(info["solution"], info["numbers"], info["target"], use_all=True)


def test_splits_and_processes():
    check_splits(CountdownEnv)
    check_other_process(CountdownEnv, seed=4, num_numbers=[3, 5])


def test_the_contract_is_kept():
    check_env(CountdownEnv(split="val"))


@pytest.mark.parametrize("num_numbers", [2, 7, [], [3, "4"], True])
def test_wrong_options_are_refused(num_numbers):
    with pytest.raises(UserError, match="num_numbers must be one or several of 3 to 6"):
        CountdownEnv(num_numbers=num_numbers)


def test_play_tells_the_components():
    env = CountdownEnv()
    solution = env.tasks[0].info["solution"]
    assert play(env, 0, f"<answer>{solution}</answer>") == (1.1, {"env": 1.0, "format": 1.0})
