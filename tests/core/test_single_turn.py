"""SingleTurnEnv over every kind of data: files, a row source, drawn tasks, tasks in memory."""

import json
import pickle
import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.check_env import check_env
from rlgym_llm.drawn_tasks import drawn_tasks
from rlgym_llm.errors import DataError, UnknownNameError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.prompt_frame import FramedTasks, PromptFrame, frame_prompt, frame_task
from rlgym_llm.single_turn import SingleTurnEnv, row_task
from rlgym_llm.tasks import GeneratorTasks, HubTasks, ListTasks
from rlgym_llm.types import Message, Task

ROWS = [{"prompt": f"Say {word}.", "answer": word, "n": i} for i, word in enumerate("abcd")]
SYSTEM = Message(role="system", content="Obey.")


def user(text):
    return Message(role="user", content=text)


def assistant(text):
    return Message(role="assistant", content=text)


def make(index, seed):
    return Task(prompt=f"{index} + {seed}?", answer=str(index + seed))


def draw_sum(index, rng, *, top=99):
    a, b = rng.randint(0, top), rng.randint(0, top)
    return Task(prompt=f"{a} + {b}?", answer=str(a + b), info={"index": index})


def sum_row(row):
    return Task(prompt=f"{row['a']} + {row['b']}?", answer=str(row["a"] + row["b"]))


class SumsEnv(SingleTurnEnv):
    """A subclass as a third party writes it."""

    @staticmethod
    def to_task(row):
        return sum_row(row)

    def gold_action(self, task):
        return f"It is {task.answer}"


@pytest.fixture
def write(tmp_path):
    def to_file(rows=ROWS, name="rows.jsonl"):
        path = tmp_path / name
        if name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif name.endswith(".json"):
            path.write_text(json.dumps(rows))
        else:
            pa = pytest.importorskip("pyarrow")
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), path)
        return path

    return to_file


@pytest.fixture
def hub(write, tmp_path, monkeypatch):
    """A data set with a training and a test split, as ``datasets`` loads one of the hub's."""
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "toy"
    folder.mkdir()
    write(ROWS, "toy/train.jsonl")
    write(ROWS[:1], "toy/test.jsonl")
    return f"hf:{folder}"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_the_same_rows_from_every_kind_of_file(write, name):
    env = SingleTurnEnv(data=write(name=name), system_prompt="Obey.")
    assert [env.tasks[i].prompt for i in range(4)] == [(SYSTEM, user(f"Say {w}.")) for w in "abcd"]
    assert env.tasks[2].answer == "c"
    assert env.tasks[2].info == {"n": 2}
    env.reset(options={"index": 2})
    assert env.step("c")[1] == 1.0


def test_rows_of_a_data_set(hub):
    env = SingleTurnEnv(data=hub, few_shot=1)
    assert len(env.tasks) == 3
    assert env.tasks[0].prompt == (user("Say a."), assistant("a"), user("Say b."))
    assert len(SingleTurnEnv(data=f"{hub}::test").tasks) == 1
    with pytest.raises(DataError, match="has no split 'tset'; did you mean 'test'"):
        SingleTurnEnv(data=f"{hub}::tset")
    with pytest.raises(DataError, match=r"^hf:.+toy:1: no column 'question'"):
        SingleTurnEnv(data=hub, columns={"prompt": "question"})


def test_a_row_source_of_a_plugin(tmp_path):
    plugin = tmp_path / "my_rows.py"
    plugin.write_text(
        "from rlgym_llm.hookspecs import hookimpl\n"
        "from rlgym_llm.specs import Kind, RowSourceSpec\n"
        "def rows(address):\n"
        "    return [{'prompt': f'{address} {i}?', 'answer': i} for i in range(3)]\n"
        "@hookimpl\n"
        "def rlgym_register(kind):\n"
        "    spec = RowSourceSpec(name='toy', entry_point=f'{__name__}:rows')\n"
        "    return [spec] if kind is Kind.ROW_SOURCE else []\n"
    )
    plugins = Plugins.discover([plugin])
    tasks = HubTasks("toy:how many", row_task, plugins=plugins)
    assert [(task.prompt, task.answer) for task in tasks] == [
        (f"how many {i}?", str(i)) for i in range(3)
    ]
    with pytest.raises(UserError, match="a row source is named like hf:OWNER/NAME"):
        HubTasks("toy", row_task, plugins=plugins)
    with pytest.raises(UnknownNameError, match=r"'tyo'; did you mean 'toy'\?"):
        HubTasks("tyo:x", row_task, plugins=plugins)


def test_a_file_wins_over_an_address_of_the_same_name(write, monkeypatch, tmp_path):
    write(name="hf:x.jsonl")
    monkeypatch.chdir(tmp_path)
    assert len(SingleTurnEnv(data="hf:x.jsonl").tasks) == 4


def test_tasks_of_ones_own():
    tasks = [Task(prompt="q", answer="a", id="mine"), Task(prompt="r", answer="b")]
    env = SingleTurnEnv(tasks=tasks, system_prompt="Obey.")
    assert env.tasks[0].id == "mine"
    framed = Task(prompt=(SYSTEM, user("r")), answer="b")
    assert env.tasks[1] == framed, "the id is the hash of what is asked, as for any task"
    assert len(SingleTurnEnv(tasks=iter(tasks)).tasks) == 2
    drawn = SingleTurnEnv(tasks=GeneratorTasks(make, num_tasks=10, seed=3), few_shot=2)
    assert len(drawn.tasks) == 8
    assert drawn.tasks[0].prompt == (
        *(user("0 + 3?"), assistant("3"), user("1 + 3?"), assistant("4"), user("2 + 3?")),
    )


def test_a_subclass_says_what_a_row_is_and_what_is_right(write):
    rows = [{"a": 2, "b": 3}, {"a": 4, "b": 5}]
    env = SumsEnv(data=write(rows), few_shot=1, prompt_style="string")
    assert env.tasks[0].prompt == "Question: 2 + 3?\nAnswer: It is 5\n\nQuestion: 4 + 5?\nAnswer:"
    assert env.tasks[0].answer == "9"
    given = SingleTurnEnv(data=write(rows), to_task=sum_row)
    assert given.tasks[0].prompt == (user("2 + 3?"),)
    renamed = SumsEnv(data=write([{"x": 1, "b": 3}]), columns={"a": "x"})
    assert renamed.tasks[0].answer == "4"


def test_solved_examples_from_elsewhere_leave_the_tasks(write):
    shown = write(ROWS[1:3], "shown.jsonl")
    env = SingleTurnEnv(data=write(), few_shot=1, few_shot_data=shown)
    assert [env.tasks[i].answer for i in range(len(env.tasks))] == ["a", "c", "d"]
    assert env.tasks[0].prompt == (user("Say b."), assistant("b"), user("Say a."))
    none = SingleTurnEnv(data=write(), few_shot=0, few_shot_data="is not looked at")
    assert len(none.tasks) == 4
    source = ListTasks([Task(prompt="1?", answer="1")])
    assert SingleTurnEnv(data=write(), few_shot=1, few_shot_data=source).tasks[0].prompt == (
        *(user("1?"), assistant("1"), user("Say a.")),
    )


def test_a_file_is_read_once_until_it_changes(write):
    path = write()
    first, second = (SingleTurnEnv(data=path, system_prompt=text) for text in ("Obey.", "Think."))
    assert first.tasks.source is second.tasks.source
    assert first.tasks[0].prompt != second.tasks[0].prompt
    mapped = SingleTurnEnv(data=path, columns={"answer": "prompt"})
    assert mapped.tasks[0].answer == "Say a."
    write([*ROWS, {"prompt": "Say e.", "answer": "e"}])
    assert len(SingleTurnEnv(data=path).tasks) == 5
    assert len(first.tasks) == 4


def test_conversations(write):
    own = {"role": "system", "content": "Be brief."}
    rows = [
        {"prompt": [own, {"role": "user", "content": "Hi"}], "answer": "hello"},
        {"prompt": [{"role": "user", "content": "Bye"}], "answer": "goodbye"},
    ]
    for name in ("rows.jsonl", "rows.parquet"):
        env = SingleTurnEnv(data=write(rows, name), system_prompt="Obey.")
        brief = Message(role="system", content="Be brief.")
        assert env.tasks[0].prompt == (brief, user("Hi")), "a conversation keeps its own"
        assert env.tasks[1].prompt == (SYSTEM, user("Bye"))
    shown = SingleTurnEnv(data=write(rows), few_shot=1, system_prompt="Obey.").tasks[0].prompt
    assert shown == (SYSTEM, user("Hi"), assistant("hello"), user("Bye"))
    with pytest.raises(UserError, match="needs prompts that are text, not conversations"):
        SingleTurnEnv(data=write(rows), prompt_style="string")


def test_prompts_that_stay_as_they_are():
    env = SingleTurnEnv(tasks=[Task(prompt="The capital of France is", answer="Paris")])
    raw = SingleTurnEnv(tasks=env.tasks.source, prompt_style="raw")
    assert raw.tasks[0] == env.tasks.source[0]
    for options in ({"system_prompt": "x"}, {"few_shot": 1}):
        with pytest.raises(UserError, match="prompt_style='raw' leaves prompts as they are"):
            SingleTurnEnv(tasks=env.tasks.source, prompt_style="raw", **options)


@pytest.mark.parametrize(
    ("row", "answer"),
    [("5", "5"), (5, "5"), (0.25, "0.25"), (None, None), ("", "")],
)
def test_answers_of_a_row(row, answer):
    assert row_task({"prompt": "q", "answer": row}).answer == answer


def test_a_row_brings_its_id_and_data_source():
    task = row_task({"prompt": "q", "answer": "a", "id": 7, "data_source": "quiz", "x": [1]})
    assert (task.id, task.data_source, task.info) == ("7", "quiz", {"x": [1]})
    bare = row_task({"prompt": "q", "answer": "a", "id": None, "data_source": None})
    assert bare == Task(prompt="q", answer="a")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "a"}, r":1: no column 'prompt' \(columns: answer\)"),
        ({"prompt": "q"}, r":1: no column 'answer' \(columns: prompt\)"),
        ({"prompt": "q", "anwser": "a"}, "did you mean 'anwser'"),
        ({"prompt": " ", "answer": "a"}, "'prompt' must be text that is not empty or a list"),
        ({"prompt": [], "answer": "a"}, "'prompt' must be text that is not empty or a list"),
        ({"prompt": ["q"], "answer": "a"}, "'prompt' must be text that is not empty or a list"),
        ({"prompt": [{"role": "user"}], "answer": "a"}, "a message has no 'content'"),
        ({"prompt": [{"from": "human", "value": "q"}], "answer": "a"}, "no field 'from'"),
        ({"prompt": "q", "answer": True}, "'answer' must be text, a number or null, got True"),
        ({"prompt": "q", "answer": ["a"]}, "'answer' must be text, a number or null"),
        ({"prompt": "q", "answer": "a", "id": [1]}, "'id' must be text or a whole number"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(write, row, message):
    with pytest.raises(DataError, match=message):
        SingleTurnEnv(data=write([row]))
    env = SingleTurnEnv(data=write([row, *ROWS]), on_bad_line="skip")
    assert len(env.tasks) == 4
    assert [reject.line for reject in env.tasks.rejects] == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"SingleTurnEnv has no problems: give data=FILE \(--data.train\) or tasks="),
        ({"split": "val"}, r"give data=FILE \(--data.val\)"),
        ({"tasks": []}, "needs at least one task"),
        ({"tasks": [Task(prompt="q")], "data": "x.jsonl"}, "data or tasks, not both"),
        ({"tasks": [Task(prompt="q")], "columns": {"a": "b"}}, "tasks are no rows"),
        ({"tasks": [Task(prompt="q")], "few_shot": 2}, "only 1 solved problem"),
        ({"tasks": [Task(prompt="q")], "few_shot": 1}, "has no answer, so there is no right reply"),
        ({"tasks": [Task(prompt="q")], "few_shot": True}, "few_shot must be a whole number"),
        ({"data": "gone.jsonl"}, r"no such file \(given by --data.train\)"),
        ({"data": "gone.jsonl", "split": "test"}, r"no such file \(given by --data.val\)"),
        ({"data": "x.csv"}, "unknown file type"),
        ({"tasks": [Task(prompt="q")], "prompt_style": "xml"}, "one of chat, string, raw"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        SingleTurnEnv(**options)


@pytest.mark.parametrize("options", [{}, {"prompt_style": "string", "few_shot": 1}])
def test_the_contract_is_kept(write, options):
    check_env(SingleTurnEnv(data=write(), **options))


TEXTS = st.text(min_size=1, max_size=20)


@given(
    prompt=TEXTS, system=st.text(max_size=10), shots=st.lists(st.tuples(TEXTS, TEXTS), max_size=3)
)
def test_a_frame_loses_nothing(prompt, system, shots):
    frame = PromptFrame(system_prompt=system, shots=tuple(shots))
    messages = frame_prompt(prompt, frame)
    roles = [*["system"] * bool(system), *["user", "assistant"] * len(shots), "user"]
    assert [message.role for message in messages] == roles
    told = [*([system] if system else []), *(text for shot in shots for text in shot), prompt]
    assert [message.content for message in messages] == told
    assert frame_prompt(prompt, PromptFrame(style="raw")) == prompt


def test_framed_tasks_pickle_without_what_they_remember():
    source = GeneratorTasks(make, num_tasks=5, seed=1)
    tasks = FramedTasks(source, PromptFrame(system_prompt="Obey."), range(1, 5))
    every = [tasks[index] for index in range(4)]
    assert tasks[0] is every[0], "remembered"
    assert tasks[-1] == every[3] == frame_task(make(4, 1), tasks.frame)
    copied = pickle.loads(pickle.dumps(tasks))
    assert [copied[index] for index in range(4)] == every
    assert len(pickle.dumps(tasks)) == len(pickle.dumps(copied))
    with pytest.raises(IndexError):
        tasks[4]


def test_drawn_tasks_fall_into_splits_that_share_none():
    draw = partial(draw_sum, top=30)
    parts = {
        split: {task.id for task in drawn_tasks(draw, num_tasks=1500, split=split)}
        for split in ("train", "val", "example")
    }
    assert sum(map(len, parts.values())) == len(set().union(*parts.values()))
    # 31 * 31 = 961 sums, of which 13, 2 and 1 in 16 fall to the splits: 781, 120 and 60
    assert 500 < len(parts["train"]) < 800
    assert 90 < len(parts["val"]) < 150
    assert 40 < len(parts["example"]) < 80


def test_drawn_tasks_are_a_function_of_index_and_seed():
    tasks = drawn_tasks(draw_sum, num_tasks=50, seed=3)
    assert [task.info["index"] for task in tasks] == list(range(50))
    random.seed(1)
    again = pickle.loads(pickle.dumps(tasks))
    assert list(again) == list(tasks)
    assert list(drawn_tasks(draw_sum, num_tasks=50, seed=4)) != list(tasks)


def test_drawn_tasks_that_cannot_be_are_an_error():
    only_one = drawn_tasks(partial(draw_sum, top=0), num_tasks=1)
    with pytest.raises(UserError, match="1000 draws gave no task of the split train"):
        only_one[0]
    with pytest.raises(UserError, match="split must be one of train, val, example, got 'test'"):
        drawn_tasks(draw_sum, num_tasks=1, split="test")
