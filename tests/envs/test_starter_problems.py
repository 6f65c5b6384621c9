import re
import subprocess
import sys
from collections import Counter

import pytest
from rlgym_llm_envs.starter_problems import StarterProblem, starter_problem, starter_row

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def results(problem: StarterProblem) -> list[int]:
    """Evaluate each step's one equation; fail on a wrong one."""
    values = []
    for step in problem.steps:
        [(left, op, right, result)] = EQUATION.findall(step)
        x, y, z = int(left), int(right), int(result)
        assert {"+": x + y == z, "-": x - y == z, "*": x * y == z, "/": x == y * z}[op], step
        values.append(z)
    return values


@pytest.fixture(scope="module")
def train() -> list[StarterProblem]:
    return [starter_problem(i, split="train") for i in range(5000)]


@pytest.fixture(scope="module")
def val() -> list[StarterProblem]:
    return [starter_problem(i, split="val") for i in range(3000)]


def test_the_steps_compute_the_answer(
    train: list[StarterProblem], val: list[StarterProblem]
) -> None:
    for problem in train + val:
        values = results(problem)
        assert values[-1] == problem.answer
        assert all(value >= 0 for value in values)


def test_every_operand_is_in_the_question_or_an_earlier_result(train: list[StarterProblem]) -> None:
    words = {"half": 2, "Half": 2, "twice": 2}
    for problem in train:
        known = {int(n) for n in re.findall(r"\d+", problem.question)}
        known |= {n for word, n in words.items() if word in problem.question}
        for step in problem.steps:
            [(left, _, right, result)] = EQUATION.findall(step)
            assert {int(left), int(right)} <= known, (problem.question, step)
            known.add(int(result))


def test_splits_share_no_pair_of_template_and_numbers(
    train: list[StarterProblem], val: list[StarterProblem]
) -> None:
    pairs = [{(p.template, p.numbers) for p in split} for split in (train, val)]
    assert not pairs[0] & pairs[1]
    other_seed = {
        (p.template, p.numbers)
        for p in (starter_problem(i, split="val", seed=7) for i in range(2000))
    }
    assert not pairs[0] & other_seed


def test_both_splits_hold_every_template_and_one_to_three_steps(
    train: list[StarterProblem], val: list[StarterProblem]
) -> None:
    assert {p.template for p in train} == {p.template for p in val}
    assert len({p.template for p in train}) == 12
    for split in (train, val):
        shares = {
            n: count / len(split) for n, count in Counter(len(p.steps) for p in split).items()
        }
        assert shares == pytest.approx({1: 0.30, 2: 0.45, 3: 0.25}, abs=0.04)


def test_a_problem_depends_on_index_split_and_seed() -> None:
    problem = starter_problem(3, split="train", seed=1)
    assert problem == starter_problem(3, split="train", seed=1)
    others = [(4, "train", 1), (3, "val", 1), (3, "train", 2)]
    assert all(problem != starter_problem(i, split=split, seed=seed) for i, split, seed in others)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_draws_the_same_problems(hash_seed: str) -> None:
    code = (
        "from rlgym_llm_envs.starter_problems import starter_problem\n"
        "print([starter_problem(i, split=s, seed=5) for i in range(20) for s in ('train', 'val')])"
    )
    env = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": hash_seed}
    out = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout
    here = [starter_problem(i, split=s, seed=5) for i in range(20) for s in ("train", "val")]
    assert out.strip() == repr(here)


def test_the_first_problem_is_frozen() -> None:
    # The shipped model was trained on this sequence: a change here calls for a rebuild.
    assert starter_row(starter_problem(0, split="val")) == {
        "question": "Noah has 13 pens. Rosa has 11 more than Noah. "
        "How many pens do they have together?",
        "answer": "Rosa has 13 + 11 = 24 pens.\nTogether they have 13 + 24 = 37 pens.\n#### 37",
    }


def test_a_row_is_in_gsm8k_layout(train: list[StarterProblem]) -> None:
    for problem in train[:200]:
        row = starter_row(problem)
        assert set(row) == {"question", "answer"}
        *steps, last = row["answer"].split("\n")
        assert tuple(steps) == problem.steps
        assert last == f"#### {problem.answer}"


@pytest.mark.parametrize("split", ["test", "", "Train"])
def test_an_unknown_split_is_an_error_that_names_both(split: str) -> None:
    with pytest.raises(ValueError, match=r"'train' or 'val'"):
        starter_problem(0, split=split)


def test_a_negative_index_is_an_error() -> None:
    with pytest.raises(ValueError, match="counts from 0"):
        starter_problem(-1, split="train")
