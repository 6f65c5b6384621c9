"""A task that no reward judges is found before anything is sampled."""

import pytest

from rlgym_llm.composition.coverage import check_coverage
from rlgym_llm.errors import DataError
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.types import Task


def task(data_source="gsm8k", task_id="t", **info):
    return Task(prompt="?", id=task_id, data_source=data_source, info=info)


BY_SOURCE = read_rewards(
    {
        "components": {
            "a": {"reward": "math", "when": {"data_source": "gsm8k"}},
            "b": {"reward": "math", "when": {"data_source": "math"}},
            "n": {"reward": "length", "weight": 0},
        }
    }
)
BY_SWITCH = read_rewards(
    {
        "components": {
            "math": {"weight": 0},
            "made": {"combine": {"switch": {"on": "data_source", "cases": {"gsm8k": "math"}}}},
        }
    }
)


@pytest.mark.parametrize("config", [BY_SOURCE, BY_SWITCH])
def test_tasks_that_are_judged_pass(config):
    check_coverage(config, [task("gsm8k")])


def test_a_component_that_asks_nothing_judges_all():
    check_coverage(read_rewards({"math": 1.0}), [task("")])


def test_the_task_the_column_its_value_and_the_known_ones_are_named(bug_report):
    case = bug_report("reward-unknown_task_name")
    row, known = case["input"]["row"], case["input"]["known"]
    assert case["right"]["values"]["fails_before_generation"]
    found = task(row["task"], str(row["id"]))
    with pytest.raises(DataError) as error:
        check_coverage(BY_SOURCE, [task("gsm8k"), found])
    told = str(error.value)
    assert f"task {str(row['id'])!r}" in told
    assert f"data_source is {row['task']!r}" in told
    assert all(repr(name) in told for name in known)


def test_a_switch_without_a_default_asks_too():
    with pytest.raises(DataError, match="data_source is 'prose', none of 'gsm8k'"):
        check_coverage(BY_SWITCH, [task("prose")])


def test_other_columns():
    config = read_rewards({"components": {"math": {"when": {"level": [1, 2]}}}})
    check_coverage(config, [task(level=2)])
    with pytest.raises(DataError, match="level is 3, none of 1, 2"):
        check_coverage(config, [task(level=3)])


def test_an_evaluation_goes_by_its_own_weights():
    here = {"weight": 0, "eval_weight": 1, "when": {"data_source": "gsm8k"}}
    there = {"eval_weight": 0, "when": {"data_source": "math"}}
    config = read_rewards({"components": {"math": here, "exact_match": there}})
    check_coverage(config, [task("math")])
    check_coverage(config, [task("gsm8k")], evaluation=True)
    with pytest.raises(DataError, match="data_source is 'gsm8k', none of 'math'"):
        check_coverage(config, [task("gsm8k")])
    with pytest.raises(DataError, match="data_source is 'math', none of 'gsm8k'"):
        check_coverage(config, [task("math")], evaluation=True)


def test_an_evaluation_that_weighs_nothing_asks_for_no_reward():
    config = read_rewards({"components": {"math": {"eval_weight": 0}}})
    check_coverage(config, [task("any")], evaluation=True)
