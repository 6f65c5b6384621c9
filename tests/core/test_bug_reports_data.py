"""Public bug reports about data, each with its own values."""

import json

import pytest

from rlgym_llm import DataError
from rlgym_llm.cli import main
from rlgym_llm.layouts.layout import recognise
from rlgym_llm.rows.file_format import read_rows

pytestmark = pytest.mark.data


def convert(*arguments):
    return main(["data", "convert", *map(str, arguments)])


def rows_of(path):
    return [row for _, row in read_rows(path)]


@pytest.mark.parametrize("policy", ["skip", "set-aside"])
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_bad_line_policy(bug_report, tmp_path, capsys, policy, name):
    case = bug_report("data-bad_line_policy")
    right = case["right"]["values"]
    given, out = tmp_path / "in.jsonl", tmp_path / name
    given.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(case["input"]["lines"]).encode())
    assert convert(given, out) == 2
    said = capsys.readouterr().err
    assert f"{given}:{right['error_line']}: bad JSON" in said
    assert "line 1" not in said
    assert not out.exists()

    assert convert(given, out, "--on-bad-line", policy) == 1
    assert [row["id"] for row in rows_of(out)] == right["kept_ids"]
    told = capsys.readouterr().err
    for line in right["rejected_lines"]:
        assert f"{given}:{line}: " in told
    num_lines = sum(bool(line) for line in case["input"]["lines"])
    assert len(right["kept_ids"]) + len(right["rejected_lines"]) == num_lines == 4
    rejects = out.with_suffix(".rejects.jsonl")
    assert rejects.exists() == (policy == "set-aside")
    if policy == "set-aside":
        found = rows_of(rejects)
        assert [(row["file"], row["line"]) for row in found] == [
            (str(given), line) for line in right["rejected_lines"]
        ]
        assert [row["text"] for row in found] == ['{"id":2,', "[3]"]


def test_int_becomes_float_with_missing(bug_report, tmp_path):
    case = bug_report("data-int_becomes_float_with_missing")
    rows, right = case["input"]["rows"], case["right"]["values"]
    given = tmp_path / "in.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert convert(given, tmp_path / "out.parquet") == 0
    back = rows_of(tmp_path / "out.parquet")
    assert back == rows  # absent keys are absent, null is null
    assert (back[0]["gold"], type(back[0]["gold"])) == (right["gold"], int)
    # Others that read the file see integers too.
    import pyarrow.parquet as pq

    [gold, *_] = pq.read_table(tmp_path / "out.parquet").column("extra").to_pylist()[2:3]
    assert (gold["k"], type(gold["k"])) == (1, int)
    layout = recognise([{"prompt": "q", "completion": "c", **back[0]}])
    [sample] = layout.to_samples({"prompt": "q", "completion": "c", **back[0]})
    assert sample.answer == right["as_text"]


def test_datasets_feature_version(bug_report, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = bug_report("data-datasets_feature_version")["input"]["schema_metadata"]
    table = pa.table({"prompt": ["q"], "tags": [["a", "b"]]}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "in.parquet")
    assert convert(tmp_path / "in.parquet", tmp_path / "out.parquet") == 0
    assert rows_of(tmp_path / "out.parquet") == [{"prompt": "q", "tags": ["a", "b"]}]
    # In the other direction nothing foreign is written that an older reader would stumble over.
    assert pq.read_schema(tmp_path / "out.parquet").metadata is None


def test_missing_task_column(bug_report):
    case = bug_report("data-missing_task_column")["input"]
    row = dict.fromkeys(case["columns"], "3")
    mapping = {"answer": case["mapping"]["gold"]}
    assert recognise([row], mapping, needs=("prompt", "answer")).answer == "label"
    renamed = {"prompt": "q", "labl": "3"}
    with pytest.raises(DataError) as caught:
        recognise([renamed], needs=("prompt", "answer"), path="compact.jsonl")
    assert str(caught.value).startswith("compact.jsonl: no column holds the answer")
    assert "--map answer=COLUMN" in str(caught.value)
    assert "(columns: prompt, labl)" in str(caught.value)


@pytest.mark.parametrize("to", ["rlgym", "verl", "trl", "messages"])
def test_unknown_chat_schema_gives_empty_prompt(bug_report, tmp_path, capsys, to):
    case = bug_report("data-unknown_chat_schema_gives_empty_prompt")
    row, right = case["input"]["row"], case["right"]["values"]["prompt"]
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_text(json.dumps(row) + "\n")
    assert convert(given, out, "--to", to) == 0
    [made] = rows_of(out)
    [message] = made["messages" if to == "messages" else "prompt"]
    assert message == {"role": "user", "content": right}

    # An empty prompt, and a schema that nobody knows, are errors with the row's number.
    for bad in (
        {"conversations": [{"from": "human", "value": ""}]},
        {"conversations": [{"speaker": "human", "said": "2+3?"}]},
        {"conversations": []},
    ):
        given.write_text(json.dumps(row) + "\n\n" + json.dumps(bad) + "\n")
        assert convert(given, out, "--to", to, "--overwrite") == 2
        assert f"{given}:3: " in capsys.readouterr().err
