"""The GSM8K environment: its sources, its prompts, and its contract."""

import json
import logging
import pickle
import subprocess
import sys

import datasets
import pytest
from rlgym_llm_envs.math_gsm8k import MathGsm8kEnv, gsm8k_task
from rlgym_llm_envs.prompts import SYSTEM_PROMPT
from rlgym_llm_envs.starter_problems import starter_problem

from rlgym_llm.check_env import check_env
from rlgym_llm.errors import DataError, UserError
from rlgym_llm.types import Message

ROWS = [
    {
        "question": f"Tom has {i} pens and gets 3 more. How many?",
        "answer": f"{i} + 3 = <<{i}+3={i + 3}>>{i + 3}\n#### {i + 3}",
    }
    for i in range(6)
]


@pytest.fixture
def rows_file(tmp_path):
    def write(rows=ROWS, name="train.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def offline(monkeypatch):
    """The hub as it looks without a network, at once instead of after five retries."""

    def load_dataset(*args, **options):
        logging.getLogger("huggingface_hub.utils").warning("Retrying in 1s [Retry 1/5].")
        raise ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub\nmore lines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


@pytest.fixture
def hub(monkeypatch):
    """A hub whose splits hold six rows each; records what was asked for."""
    asked = []

    def load_dataset(name, config, *, split):
        asked.append((name, config, split))
        return [{**row, "question": f"{split}: {row['question']}"} for row in ROWS]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def questions(env):
    return [env.tasks[i].info["question"] for i in range(len(env.tasks))]


def test_a_local_file_in_gsm8ks_layout(rows_file):
    env = MathGsm8kEnv(data=rows_file())
    assert len(env.tasks) == 6
    task = env.tasks[2]
    assert task.prompt == (
        Message(role="system", content=SYSTEM_PROMPT),
        Message(role="user", content="Tom has 2 pens and gets 3 more. How many?"),
    )
    assert task.answer == "5"
    assert task.data_source == "openai/gsm8k"
    assert task.info["solution"] == ROWS[2]["answer"]
    assert env.reset(options={"index": 2})[0] == task.prompt


def test_the_same_rows_from_parquet(rows_file, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "train.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    parquet, jsonl = MathGsm8kEnv(data=path), MathGsm8kEnv(data=rows_file())
    assert [parquet.tasks[i] for i in range(6)] == [jsonl.tasks[i] for i in range(6)]


@pytest.mark.data
@pytest.mark.parametrize(("split", "size"), [("train", 7473), ("test", 1319)])
def test_the_real_problems_load(test_data, split, size):
    env = MathGsm8kEnv(data=test_data / "data" / "gsm8k" / f"{split}.jsonl", split=split)
    assert len(env.tasks) == size
    assert len({env.tasks[i].id for i in range(size)}) == size
    # Every answer is a number with an optional sign and thousands separators.
    assert all(env.tasks[i].answer.replace(",", "").lstrip("-").isdecimal() for i in range(size))


@pytest.mark.data
def test_the_first_real_problem(test_data):
    env = MathGsm8kEnv(data=test_data / "data" / "gsm8k" / "test.jsonl", split="val")
    # Janet's ducks: 16 - 3 - 4 = 9 eggs at 2 dollars each.
    assert env.tasks[0].answer == "18"
    assert env.gold_action(env.tasks[0]).endswith("\n#### 18")
    assert "<<" not in env.gold_action(env.tasks[0])


def test_starter_problems_say_what_they_are():
    env = MathGsm8kEnv(source="starter")
    assert len(env.tasks) == 4096
    problem = starter_problem(7, split="train")
    task = env.tasks[7]
    assert task.prompt[-1].content == problem.question
    assert task.answer == str(problem.answer)
    assert task.data_source == "rlgym/starter"
    val = MathGsm8kEnv(source="starter", split="val")
    assert len(val.tasks) == 200
    assert val.tasks[3].prompt[-1].content == starter_problem(3, split="val").question
    few = MathGsm8kEnv(source="starter", num_problems=5, seed=9)
    assert len(few.tasks) == 5
    assert few.tasks[0] != env.tasks[0]


@pytest.mark.parametrize(("split", "hub_split"), [("train", "train"), ("val", "test")])
@pytest.mark.parametrize("source", ["auto", "hub"])
def test_the_hub_is_asked_where_no_file_is_given(hub, source, split, hub_split):
    env = MathGsm8kEnv(source=source, split=split)
    assert hub == [("openai/gsm8k", "main", hub_split)]
    assert env.tasks[0].info["question"].startswith(f"{hub_split}: ")
    assert env.tasks[0].data_source == "openai/gsm8k"


@pytest.mark.parametrize("source", ["auto", "hub"])
def test_no_network_is_one_line_with_the_ways_out(offline, source, caplog):
    with pytest.raises(UserError) as caught:
        MathGsm8kEnv(source=source)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("openai/gsm8k", "Couldn't reach", "--data.train", "source='starter'"):
        assert part in message
    assert caplog.records == [], "the client's retries are not shown"
    with pytest.raises(UserError, match=r"--data\.val"):
        MathGsm8kEnv(source=source, split="val")


def test_a_missing_datasets_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="needs the package datasets"):
        MathGsm8kEnv()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "answer": "5"}, "must end in '#### <number>', got '5'"),
        ({"question": "q", "answer": "5 ####  "}, "must end in '#### <number>'"),
        ({"question": " ", "answer": "#### 5"}, "'question' must be text that is not empty"),
        ({"question": "q", "answer": 5}, "'answer' must be text that is not empty, got 5"),
        ({"question": "q" * 100_001, "answer": "#### 5"}, "100001 characters, over 100000"),
        ({"prompt": "q", "answer": "#### 5"}, "no column 'question'"),
        ({"questoin": "q", "answer": "#### 5"}, "did you mean 'questoin'"),
    ],
)
def test_malformed_rows_name_file_and_line(rows_file, row, message):
    path = rows_file([ROWS[0], row])
    with pytest.raises(DataError) as caught:
        MathGsm8kEnv(data=path)
    assert (caught.value.path, caught.value.line) == (path, 2)
    assert message in str(caught.value)
    env = MathGsm8kEnv(data=path, on_bad_line="skip")
    assert len(env.tasks) == 1
    assert len(env.tasks.rejects) == 1


@pytest.mark.data
def test_a_foreign_chat_layout_is_refused_and_never_an_empty_prompt(bug_report, rows_file):
    row = bug_report("data-unknown_chat_schema_gives_empty_prompt")["input"]["row"]
    with pytest.raises(DataError, match=r":1: no column 'question' \(columns: conversations\)"):
        MathGsm8kEnv(data=rows_file([row]))


def test_a_missing_file_names_the_setting_of_its_split(tmp_path):
    with pytest.raises(DataError, match=r"no such file \(given by --data.train\)"):
        MathGsm8kEnv(data=tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"no such file \(given by --data.val\)"):
        MathGsm8kEnv(data=tmp_path / "gone.jsonl", split="val")


def test_few_shot_turns_come_from_the_training_rows_and_leave_the_tasks(rows_file):
    env = MathGsm8kEnv(data=rows_file(), few_shot=2)
    assert questions(env) == [row["question"] for row in ROWS[2:]]
    system, *shots, asked = env.tasks[0].prompt
    assert system.role == "system"
    assert [(message.role, message.content) for message in shots] == [
        ("user", ROWS[0]["question"]),
        ("assistant", "0 + 3 = 3\n#### 3"),
        ("user", ROWS[1]["question"]),
        ("assistant", "1 + 3 = 4\n#### 4"),
    ]
    assert asked.content == ROWS[2]["question"]


def test_few_shot_of_another_split_needs_training_problems(rows_file):
    val = rows_file([{**row, "question": "val: " + row["question"]} for row in ROWS], "val.jsonl")
    with pytest.raises(UserError, match="give few_shot_data=<training file>"):
        MathGsm8kEnv(data=val, split="val", few_shot=1)
    env = MathGsm8kEnv(data=val, split="val", few_shot=1, few_shot_data=rows_file())
    assert len(env.tasks) == 6
    assert env.tasks[0].prompt[1].content == ROWS[0]["question"]
    with pytest.raises(UserError, match="only 6 solved problems"):
        MathGsm8kEnv(data=rows_file(), few_shot=7)


def test_few_shot_from_the_hub_and_the_starter(hub):
    env = MathGsm8kEnv(split="val", few_shot=1)
    assert env.tasks[0].prompt[1].content == f"train: {ROWS[0]['question']}"
    assert len(env.tasks) == 6
    assert len(MathGsm8kEnv(split="train", few_shot=1).tasks) == 5
    train = MathGsm8kEnv(source="starter", few_shot=1)
    first = starter_problem(0, split="train").question
    assert train.tasks[0].prompt[1].content == first
    assert train.tasks[0].prompt[-1].content == starter_problem(1, split="train").question
    val = MathGsm8kEnv(source="starter", split="val", few_shot=1)
    assert val.tasks[0].prompt[1].content == first
    assert val.tasks[0].prompt[-1].content == starter_problem(0, split="val").question


def test_string_prompts_for_base_models(rows_file):
    env = MathGsm8kEnv(data=rows_file(), prompt_style="string", few_shot=1, system_prompt="Think.")
    assert env.tasks[0].prompt == (
        "Think.\n\n"
        f"Question: {ROWS[0]['question']}\nAnswer: 0 + 3 = 3\n#### 3\n\n"
        f"Question: {ROWS[1]['question']}\nAnswer:"
    )
    bare = gsm8k_task(ROWS[0], prompt_style="string")
    assert bare.prompt == f"Question: {ROWS[0]['question']}\nAnswer:"
    assert gsm8k_task(ROWS[0]).prompt == (Message(role="user", content=ROWS[0]["question"]),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "web"}, "source must be one of auto, hub, starter, got 'web'"),
        ({"split": "dev"}, "split must be one of"),
        ({"prompt_style": "xml"}, "prompt_style must be one of"),
        ({"few_shot": -1}, "few_shot must be 0 or more"),
        ({"source": "starter", "data": "x.jsonl"}, "does not read data='x.jsonl'"),
        ({"num_problems": 5}, "it needs source='starter'"),
        ({"source": "starter", "num_problems": 0}, "num_problems must be 1 or more, got 0"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        MathGsm8kEnv(**options)


def test_nothing_heavy_is_imported():
    code = (
        "import sys, rlgym_llm_envs.math_gsm8k as m; m.MathGsm8kEnv(source='starter');"
        "print([n for n in ('datasets', 'torch', 'transformers', 'pyarrow') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("style", ["chat", "string"])
def test_the_contract_is_kept(style):
    check_env(MathGsm8kEnv(source="starter", split="val", prompt_style=style))


@pytest.mark.parametrize(
    ("reply", "reward", "components"),
    [
        # math 1.0 + 0.2 x format 1.0; lenient is a metric
        ("2 + 3 = 5\n#### 5", 1.2, {"math": 1.0, "format": 1.0, "lenient": 1.0}),
        ("2 + 3 = 6\n#### 6", 0.2, {"math": 0.0, "format": 1.0, "lenient": 0.0}),
        ("so it is 5", 0.0, {"math": 0.0, "format": 0.0, "lenient": 1.0}),
        ("no idea", 0.0, {"math": 0.0, "format": 0.0, "lenient": 0.0}),
    ],
)
def test_default_rewards(rows_file, reply, reward, components):
    env = MathGsm8kEnv(data=rows_file())
    env.reset(options={"index": 2})
    _, got, terminated, truncated, info = env.step(reply)
    assert got == pytest.approx(reward)
    assert info["components"] == components
    assert (terminated, truncated, info["unscored"]) == (True, False, False)


def test_a_fresh_process_takes_over_in_mid_episode(tmp_path):
    env = MathGsm8kEnv(source="starter", split="val")
    env.reset(seed=3)
    gold = env.gold_action(env.task)
    (tmp_path / "env.pickle").write_bytes(pickle.dumps(env))
    code = (
        "import pickle, sys; env = pickle.load(open(sys.argv[1], 'rb'));"
        "print(env.step(sys.argv[2])[1], env.reset()[1]['task_id'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "env.pickle"), gold],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(env.step(gold)[1]), env.reset()[1]["task_id"]]
