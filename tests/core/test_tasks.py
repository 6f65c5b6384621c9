"""Task sources: files read strictly, with file and line in every complaint."""

import json
import pickle

import pytest

from rlgym_llm.errors import DataError, UserError
from rlgym_llm.tasks import (
    GeneratorTasks,
    JsonlTasks,
    ListTasks,
    ParquetTasks,
    TaskSource,
    file_tasks,
)
from rlgym_llm.types import Task


def to_task(row):
    return Task(prompt=row["prompt"], answer=row["gold"])


def make(index, seed):
    return Task(prompt=f"{index} + {seed} = ?", answer=str(index + seed))


def id_task(row):
    return Task(prompt=str(row["id"]))


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "good.jsonl", *({"prompt": f"q{i}", "gold": str(i)} for i in range(3)))


@pytest.fixture
def parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def build(rows, metadata=None):
        path = tmp_path / "rows.parquet"
        table = pa.Table.from_pylist(rows)
        pq.write_table(table.replace_schema_metadata(metadata), path)
        return path

    return build


def test_every_source_fits_the_protocol_and_pickles(good, parquet):
    sources = [
        ListTasks([make(0, 1)]),
        GeneratorTasks(make, num_tasks=4, seed=2),
        JsonlTasks(good, to_task),
        ParquetTasks(parquet([{"prompt": "q", "gold": "1"}]), to_task),
    ]
    for source in sources:
        assert isinstance(source, TaskSource)
        copied = pickle.loads(pickle.dumps(source))
        assert [copied[i] for i in range(len(copied))] == [source[i] for i in range(len(source))]
        with pytest.raises(IndexError):
            source[len(source)]


def test_generator_tasks_depend_on_index_and_seed_alone():
    tasks = GeneratorTasks(make, num_tasks=4, seed=2)
    assert tasks[3].answer == "5"
    assert tasks[-1] == tasks[3]
    assert GeneratorTasks(make, num_tasks=4, seed=7)[3].answer == "10"
    assert [task.answer for task in tasks] == ["2", "3", "4", "5"]
    with pytest.raises(UserError, match="at least 1"):
        GeneratorTasks(make, num_tasks=0)


@pytest.mark.data
def test_bad_lines_are_named_or_set_aside(bug_report, tmp_path):
    case = bug_report("data-bad_line_policy")
    right = case["right"]["values"]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(case["input"]["lines"]).encode())
    with pytest.raises(DataError) as caught:
        JsonlTasks(path, id_task)
    assert (caught.value.path, caught.value.line) == (path, right["error_line"])
    assert str(caught.value).startswith(f"{path}:3: bad JSON")
    assert "line 1" not in str(caught.value)
    tasks = JsonlTasks(path, id_task, on_bad_line="skip")
    assert [task.prompt for task in tasks] == [str(i) for i in right["kept_ids"]]
    assert [reject.line for reject in tasks.rejects] == right["rejected_lines"]
    # {"id":2, breaks off at column 9 of its line; [3] is JSON, but no object.
    assert "column" in tasks.rejects[0].reason
    assert tasks.rejects[1].reason == "expected a JSON object, got list"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt": "\xff", "gold": "1"}', "no UTF-8: invalid start byte"),
        (b'{"prompt": "q", "gold": NaN}', "NaN is not JSON"),
        (b'{"prompt": "q"}', "no column 'gold' (columns: prompt)"),
        (b'{"prompt": "", "gold": "1"}', "prompt that is not empty"),
        (b"[" * 100_000, "bad JSON"),
    ],
)
def test_malformed_rows_are_refused_with_file_and_line(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "q", "gold": "1"}\n\n' + line + b"\n")
    with pytest.raises(DataError) as caught:
        JsonlTasks(path, to_task)
    assert caught.value.line == 3
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_a_missing_column_fails_at_load_and_can_be_mapped(bug_report, tmp_path):
    case = bug_report("data-missing_task_column")["input"]
    path = write(tmp_path / "rows.jsonl", dict.fromkeys(case["columns"], "3"))
    with pytest.raises(DataError, match=r"no column 'gold' \(columns: prompt, label\)"):
        JsonlTasks(path, to_task)
    assert JsonlTasks(path, to_task, columns=case["mapping"])[0].answer == "3"
    with pytest.raises(DataError, match="no column 'lable'; did you mean 'label'"):
        JsonlTasks(path, to_task, columns={"gold": "lable"})


def test_missing_empty_and_foreign_files_name_the_setting(tmp_path):
    with pytest.raises(DataError, match=r"gone.jsonl: no such file \(given by --data.train\)"):
        JsonlTasks(tmp_path / "gone.jsonl", to_task, key="--data.train")
    with pytest.raises(DataError, match="this is a folder"):
        JsonlTasks(tmp_path, to_task)
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match=r"holds no task \(given by --data.val\)"):
        JsonlTasks(tmp_path / "empty.jsonl", to_task, key="--data.val")
    with pytest.raises(DataError, match="unknown file type"):
        file_tasks(tmp_path / "rows.csv", to_task)
    (tmp_path / "bad.jsonl").write_text("{\n")
    with pytest.raises(DataError, match=r"holds no task \(1 bad line, first: bad JSON"):
        JsonlTasks(tmp_path / "bad.jsonl", to_task, on_bad_line="skip")
    with pytest.raises(UserError, match="error or skip"):
        JsonlTasks(tmp_path / "bad.jsonl", to_task, on_bad_line="ignore")


def test_file_tasks_goes_by_the_ending(good, parquet):
    assert isinstance(file_tasks(good, to_task), JsonlTasks)
    path = parquet([{"prompt": "q", "gold": "7"}])
    tasks = file_tasks(path, to_task)
    assert isinstance(tasks, ParquetTasks)
    assert tasks[0].answer == "7"


def keep_row(row):
    return Task(prompt="q", info={"row": dict(row)})


@pytest.mark.data
def test_integers_beside_nulls_stay_integers(bug_report, parquet):
    case = bug_report("data-int_becomes_float_with_missing")
    tasks = ParquetTasks(parquet(case["input"]["rows"][:2]), keep_row)
    golds = [task.info["row"]["gold"] for task in tasks]
    assert golds == [case["right"]["values"]["gold"], None]
    assert str(golds[0]) == case["right"]["values"]["as_text"]


@pytest.mark.data
def test_foreign_schema_metadata_is_ignored(bug_report, parquet):
    metadata = bug_report("data-datasets_feature_version")["input"]["schema_metadata"]
    tasks = ParquetTasks(parquet([{"prompt": "q", "gold": "1"}], metadata), to_task)
    assert len(tasks) == 1


def test_parquet_complaints_carry_the_row(parquet, tmp_path):
    path = parquet([{"prompt": "q", "gold": "1"}, {"prompt": "", "gold": "2"}])
    with pytest.raises(DataError) as caught:
        ParquetTasks(path, to_task)
    assert caught.value.line == 2
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no parquet at all")
    with pytest.raises(DataError, match="bad parquet"):
        ParquetTasks(broken, to_task)
