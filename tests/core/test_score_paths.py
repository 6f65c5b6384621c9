"""No command replaces what it reads, nor a file that is none of its outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlgym_llm.cli import main

ROWS = [
    {"id": str(n), "prompt": f"{n} + 1?", "completion": f"#### {n + 1}", "answer": str(n + 1)}
    for n in range(4)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.jsonl", "x.rejects.jsonl", "y.summary.json", "old.jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in ROWS)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rows.jsonl -o rows.jsonl", "rows.jsonl is an input and the output too"),
        ("rows.jsonl -o a.jsonl --report rows.jsonl", "rows.jsonl is an input and the report too"),
        ("rows.jsonl -o a.jsonl --report a.jsonl", "a.jsonl is the output and the report"),
        ("rows.jsonl -o a.jsonl --report notes.txt", "notes.txt exists and is no HTML page"),
        ("rows.jsonl -o a.jsonl --report no/r.html", "there is no folder no for r.html"),
        ("rows.jsonl -o a.jsonl --report .", ". is a folder"),
        ("x.rejects.jsonl -o x.jsonl", "is an input and the output's rejects too"),
        ("rows.jsonl -o y.jsonl", "y.summary.json exists and is no summary"),
        ("rows.jsonl -o a.jsonl --diff gone.jsonl", "--diff gone.jsonl: there is no such file"),
        (
            "rows.jsonl -o old.jsonl --overwrite --diff old.jsonl",
            "old.jsonl is what --diff compares with and the output too",
        ),
    ],
)
def test_score_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    before = contents(folder)
    assert main(["score", "--reward", "math=1.0", *words.split()]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert contents(folder) == before


def test_a_folder_of_somebody_else_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = folder / "a.jsonl.work" / "mine"
    mine.parent.mkdir()
    mine.write_text("x")
    assert main(["score", "rows.jsonl", "--reward", "math", "-o", "a.jsonl"]) == 2
    assert "a.jsonl.work is no folder of a run" in capsys.readouterr().err
    assert mine.read_text() == "x"


@pytest.mark.parametrize("target", ["s.jsonl", "s.summary.json", "notes.txt"])
def test_report_refuses(folder: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    assert main(["score", "rows.jsonl", "--reward", "math", "-o", "s.jsonl"]) == 0
    before = contents(folder)
    assert main(["report", "s.jsonl", target]) == 2
    assert "give the report another name" in capsys.readouterr().err
    assert contents(folder) == before
    assert main(["report", "s.jsonl", "r.html"]) == main(["report", "s.jsonl", "r.html"]) == 0


def test_convert_does_not_replace_its_source_by_its_rejects(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    words = "data convert x.rejects.jsonl x.jsonl --on-bad-line set-aside --overwrite"
    assert main(words.split()) == 2
    assert "would be replaced" in capsys.readouterr().err
    assert contents(folder) == before


def test_two_columns_of_one_name_are_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table([["1 + 1?"], ["2"], ["#### 2"], ["#### 3"]], names=[*"parr"])
    pq.write_table(table, "twice.parquet")
    columns = ["--map", "prompt=p", "--map", "completion=r", "--map", "answer=a"]
    assert main(["score", "twice.parquet", "--reward", "math", "-o", "t.jsonl", *columns]) == 2
    assert "two columns are called 'r'" in capsys.readouterr().err
    assert main("data convert twice.parquet t.jsonl".split()) == 2


def test_an_absent_answer_of_a_table_is_no_answer(folder: Path) -> None:
    table = pa.table(
        [["1 + 1?"] * 2, ["#### 2"] * 2, pa.array([2.0, float("nan")])],
        names=["prompt", "completion", "answer"],
    )
    pq.write_table(table, "nan.parquet")
    assert main("score nan.parquet --reward math -o n.jsonl".split()) == 1
    right, bare = map(json.loads, Path("n.jsonl").read_text().splitlines())
    assert right["rlgym"]["reward"] == 1.0
    assert bare["rlgym"]["reward"] is None
    assert "needs the column 'answer'" in bare["rlgym"]["error"]


@pytest.mark.parametrize("words", [["env", "new", "aa"], ["reward", "new", "aa"]])
def test_new_says_what_is_in_the_way(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main([*words, "--output", "notes.txt/sub"]) == 2
    assert "Not a directory" in capsys.readouterr().err
    assert main([*words[:2], "a" * 300]) == 2
    assert "a name of 300 characters" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    program = "import sys; from rlgym_llm.cli import main; sys.exit(main(['env', 'list']))"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "rlgym: No space left on device\n")
