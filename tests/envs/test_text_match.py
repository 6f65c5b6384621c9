"""text-match: a reply is right where its text is the answer, whole or by a pattern."""

import json
import sys
from pathlib import Path

import pytest
from rlgym_llm_envs.text_match import TextMatchEnv

from rlgym_llm.check_env import check_env
from rlgym_llm.errors import DataError, UserError
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Task

sys.path.insert(0, str(Path(__file__).parent))
from problem_checks import check_gold_and_garbage, check_other_process, check_splits, play


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "capitals.jsonl"
    rows = [("France", "Paris"), ("the Faroe Islands", "Tórshavn"), ("the US", "Washington, D.C.")]
    lines = [json.dumps({"q": f"Capital of {land}?", "a": city}) + "\n" for land, city in rows]
    path.write_text("".join(lines))
    return {"data": path, "columns": {"prompt": "q", "answer": "a"}}


def starter(**options):
    return TextMatchEnv(source="starter", **options)


def garbage(task):
    word = task.info["word"]
    return [
        "",
        "colourless green ideas sleep furiously",
        word,
        task.answer.upper(),
        f"The word is {task.answer}",
        f"{task.answer} {task.answer}",
        task.answer[:-1],
    ]


def test_gold_earns_the_maximum_and_garbage_nothing():
    check_gold_and_garbage(starter(), maximum=1.0, component="match", garbage=garbage)


def test_gold_by_pattern_earns_the_maximum():
    env = starter(match="regex", pattern=r"Answer: (\w+)", reply="Answer: {answer}")
    replies = [lambda task: f"Answer: {task.answer}\nAnswer: no", lambda task: task.answer]
    check_gold_and_garbage(
        env,
        maximum=1.0,
        component="match",
        garbage=lambda task: [*garbage(task)[:4], *(reply(task) for reply in replies)],
    )


def test_starter_words_are_written_backwards():
    env = starter()
    for index in range(200):
        task = env.tasks[index]
        assert task.prompt[-1].content == f"Write the word {task.info['word']} backwards."
        assert task.answer == "".join(reversed(task.info["word"])) != task.info["word"]


def test_splits_and_processes():
    check_splits(starter)
    check_other_process(TextMatchEnv, source="starter", seed=4)


@pytest.mark.parametrize(
    ("options", "reply", "is_right"),
    [
        ({}, "Paris", True),
        ({}, " Paris\n", True),
        ({}, "paris", False),
        ({}, "Paris.", False),
        ({"casefold": True}, "PARIS", True),
        (
            {"match": "regex", "pattern": r"(?i)\b(paris|lyon)\b", "group": None},
            "It's PARIS!",
            True,
        ),
        ({"match": "regex", "pattern": r"<(\w+)>"}, "either <Lyon> or <Paris>", True),
        ({"match": "regex", "pattern": r"<(\w+)>"}, "either <Paris> or <Lyon>", False),
        ({"match": "regex", "pattern": r"<(?P<city>\w+)>", "group": "city"}, "<Paris>", True),
        ({"rewards": {"components": {"match": {"reward": "exact_match"}}}}, "Paris", True),
    ],
)
def test_what_counts_as_right(data, options, reply, is_right):
    assert play(TextMatchEnv(**data, **options), 0, reply)[1]["match"] == float(is_right)


def test_runs_of_white_space(data):
    env = TextMatchEnv(**data, spaces=True)
    assert play(env, 2, "Washington, \n D.C.")[0] == 1.0
    assert play(TextMatchEnv(**data), 2, "Washington,  D.C.")[0] == 0.0


def test_the_gold_reply_stands_in_few_shot_prompts(data):
    env = TextMatchEnv(**data, few_shot=1, reply="Answer: {answer}", system_prompt="")
    assert [(m.role, m.content) for m in env.tasks[0].prompt] == [
        ("user", "Capital of France?"),
        ("assistant", "Answer: Paris"),
        ("user", "Capital of the Faroe Islands?"),
    ]
    assert len(env.tasks) == 2


def test_tasks_and_solved_examples_of_ones_own():
    own = Task(prompt="Capital of Peru?", answer="Lima")
    assert play(TextMatchEnv(tasks=[own]), 0, "Lima")[0] == 1.0
    env = starter(few_shot=1, few_shot_data=ListTasks([own]))
    assert [message.content for message in env.tasks[0].prompt[1:3]] == [own.prompt, "Lima"]


def test_the_contract_is_kept(data):
    check_env(starter(split="val"))
    check_env(TextMatchEnv(**data))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"TextMatchEnv has no problems: give a data file with --data\.train, or take"),
        ({"split": "val"}, r"give a data file with --data\.val"),
        ({"match": "fuzzy"}, "match must be one of exact, regex, got 'fuzzy'"),
        ({"match": "regex"}, "match='regex' needs a pattern"),
        ({"pattern": "x"}, "match='exact' takes none"),
        ({"match": "regex", "pattern": "x", "casefold": True}, "casefold and spaces are for"),
        ({"reply": "yes"}, "reply must hold {answer}, got 'yes'"),
        ({"source": "hub"}, "source must be one of auto, starter"),
        ({"num_problems": 5}, "it needs source='starter'"),
        ({"source": "starter", "data": "x.jsonl"}, "does not read data='x.jsonl'"),
        ({"source": "starter", "tasks": [1]}, "does not read tasks"),
        ({"source": "starter", "columns": {"prompt": "q"}}, "columns and to_task read rows"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        TextMatchEnv(**options)


def test_a_wrong_column_is_named_with_file_and_line(data):
    with pytest.raises(DataError, match=r"capitals.jsonl:1: no column 'prompt' \(columns: q, a\)"):
        TextMatchEnv(data=data["data"])
