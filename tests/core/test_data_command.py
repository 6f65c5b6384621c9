"""``rlgym data convert``, as people run it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from rlgym_llm import Completion, Rollout, ScoreCard, Task, Turn
from rlgym_llm.cli import main
from rlgym_llm.rows.file_format import read_rows
from rlgym_llm.scores import CardStatus, Component, ScoreStatus, StepScore
from rlgym_llm.store import read_rollouts, write_rollouts

PROGRAM = "import sys; from rlgym_llm.cli import main; sys.exit(main(sys.argv[1:]))"
COMMAND = [sys.executable, "-c", PROGRAM, "data", "convert"]
TASKS = [
    {"id": 1, "prompt": "2+3?", "answer": "5", "extra": {"k": 1}},
    {"id": 2, "prompt": "π?", "answer": None, "extra": {"q": "x"}},
    {"id": 3, "prompt": "1+1?", "answer": "2", "extra": None, "gold": 2},
]


def convert(*arguments):
    return main(["data", "convert", *map(str, arguments)])


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def rows_of(path):
    return [row for _, row in read_rows(path)]


@pytest.fixture
def tasks(tmp_path):
    return write(tmp_path / "tasks.jsonl", TASKS)


@pytest.fixture
def dump(tmp_path):
    """A rollout dump as training writes it."""
    rollouts, cards = [], []
    for index in range(4):
        completion = Completion(
            text=f"= {index}",
            token_ids=(7, index),
            logprobs=(-0.5, -0.125 * index),
            version_spans=((0, 2, 3),),
        )
        rollouts.append(
            Rollout(
                id=f"r{index}",
                task=Task(prompt="1+1?", answer="2", info={"level": 1}),
                group_id="g0",
                sample_index=index,
                seed=index,
                turns=(Turn(new_prompt_token_ids=(1, 2), completion=completion),),
                terminated=True,
            )
        )
        reward = float(index == 2)
        component = Component(
            raw=reward,
            weight=1.0,
            transformed=reward,
            contribution=reward,
            status=ScoreStatus.OK,
            steps=(StepScore(value=reward, char_start=0, char_end=3),) if index else (),
            info={"rule": "number"} if index % 2 else {},
        )
        cards.append(
            ScoreCard(
                rollout_id=f"r{index}",
                reward=reward,
                status=CardStatus.SCORED,
                components={"math": component},
            )
        )
    path = tmp_path / "dump.jsonl"
    write_rollouts(path, rollouts, cards, step=5)
    return path


class TestFiles:
    @pytest.mark.parametrize(
        "name", ["a.parquet", "a.json", "a.ndjson", "a.jsonl.gz", "a.json.gz", "a.jsonl.zst"]
    )
    def test_there_and_back(self, tasks, tmp_path, name):
        assert convert(tasks, tmp_path / name) == 0
        assert convert(tmp_path / name, tmp_path / "back.jsonl") == 0
        assert rows_of(tmp_path / "back.jsonl") == TASKS
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            ["tasks.jsonl", "back.jsonl", name]
        )

    def test_several_files_become_one_in_their_order(self, tasks, tmp_path):
        more = write(tmp_path / "more.json", [{"id": 4, "prompt": "q"}])
        assert convert(tasks, more, tmp_path / "all.parquet", "--batch-rows", 2) == 0
        assert rows_of(tmp_path / "all.parquet") == [*TASKS, {"id": 4, "prompt": "q"}]

    def test_a_rollout_dump_through_parquet_is_the_same_dump(self, dump, tmp_path):
        assert convert(dump, tmp_path / "dump.parquet") == 0
        assert convert(tmp_path / "dump.parquet", tmp_path / "back.jsonl") == 0
        assert rows_of(tmp_path / "back.jsonl") == rows_of(dump)
        assert read_rollouts(tmp_path / "back.jsonl") == read_rollouts(dump)

    def test_an_output_that_exists_stays_unless_told(self, tasks, tmp_path, capsys):
        out = tmp_path / "out.jsonl"
        out.write_text("mine")
        assert convert(tasks, out) == 2
        assert f"{out}: exists already: give --overwrite" in capsys.readouterr().err
        assert out.read_text() == "mine"
        assert convert(tasks, out, "--overwrite") == 0
        assert rows_of(out) == TASKS

    def test_a_file_onto_itself(self, tasks):
        assert convert(tasks, tasks, "--overwrite") == 0
        assert rows_of(tasks) == TASKS

    def test_nothing_to_write_writes_nothing(self, tmp_path, capsys):
        (tmp_path / "empty.jsonl").write_text("\n")
        assert convert(tmp_path / "empty.jsonl", tmp_path / "out.parquet") == 2
        assert "there is no row to write" in capsys.readouterr().err
        assert not (tmp_path / "out.parquet").exists()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["gone.jsonl", "out.jsonl"], "gone.jsonl: no such file"),
            (["tasks.jsonl", "out.csv"], "out.csv: unknown file type"),
            (["tasks.jsonl", "no/out.jsonl"], "there is no folder"),
            (["tasks.jsonl"], "give the files to read and, last, the one to write"),
            (["tasks.jsonl", "out.jsonl", "--map", "x"], "--map takes FIELD=COLUMN"),
            (["tasks.jsonl", "out.jsonl", "--batch-rows", "0"], "at least 1, got 0"),
            (["s3:bucket/x", "out.jsonl"], "unknown row source 's3' (known: hf)"),
            (["tasks.jsonl", "out.jsonl", "--to", "verll"], "invalid choice: 'verll'"),
        ],
    )
    def test_mistakes_are_one_line(self, tasks, tmp_path, monkeypatch, capsys, arguments, message):
        monkeypatch.chdir(tmp_path)
        assert convert(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tasks.jsonl"]


class TestLayouts:
    def test_ours_to_verl_and_back(self, tasks, tmp_path, capsys):
        assert convert(tasks, tmp_path / "verl.parquet", "--to", "verl") == 0
        assert "tasks.jsonl: plain (prompt=prompt, answer=answer, id=id)" in capsys.readouterr().out
        first = rows_of(tmp_path / "verl.parquet")[0]
        assert first["prompt"] == [{"role": "user", "content": "2+3?"}]
        assert first["reward_model"] == {"style": "rule", "ground_truth": "5"}
        assert first["extra_info"]["index"] == 1
        assert convert(tmp_path / "verl.parquet", tmp_path / "back.jsonl", "--to", "rlgym") == 0
        assert rows_of(tmp_path / "back.jsonl") == [
            {k: v for k, v in row.items() if not (k == "answer" and v is None)} for row in TASKS
        ]

    def test_verls_file_opens_with_structs_for_everybody(self, tasks, tmp_path):
        import pyarrow.parquet as pq

        convert(tasks, tmp_path / "verl.parquet", "--to", "verl")
        table = pq.read_table(tmp_path / "verl.parquet")
        assert str(table.schema.field("prompt").type) == (
            "list<element: struct<role: string, content: string>>"
        )
        [first, *_] = table.column("extra_info").to_pylist()
        assert (first["index"], first["extra"]) == (1, {"k": 1, "q": None})

    @pytest.mark.parametrize("to", ["rlgym", "verl", "verl-dump", "trl", "messages", "table"])
    def test_a_dump_into_every_layout_is_recognised_again(self, dump, tmp_path, to, capsys):
        assert convert(dump, tmp_path / "out.parquet", "--to", to) == 0
        assert convert(tmp_path / "out.parquet", tmp_path / "out.jsonl", "--to", "rlgym") == 0
        rows = rows_of(tmp_path / "out.jsonl")
        assert [row["completion"] for row in rows] == [f"= {index}" for index in range(4)]
        assert [row["answer"] for row in rows] == ["2"] * 4
        assert [row["id"] for row in rows] == ["r0", "r1", "r2", "r3"]
        assert [row.get("reward", row.get("score")) for row in rows] == [0.0, 0.0, 1.0, 0.0]

    def test_the_table_has_its_types_whatever_it_holds(self, tasks, dump, tmp_path):
        import pyarrow.parquet as pq

        given = write(tmp_path / "plain.jsonl", [{"prompt": "q", "response": "c"}])
        convert(dump, tmp_path / "dump.parquet", "--to", "table")
        convert(given, tmp_path / "plain.parquet", "--to", "table")
        wide, narrow = (pq.read_schema(tmp_path / f"{n}.parquet") for n in ("dump", "plain"))
        for name in ("reward", "advantage", "logprobs", "values", "token_ids", "mask", "length"):
            assert wide.field(name).type == narrow.field(name).type
        row = rows_of(tmp_path / "dump.parquet")[2]
        assert (row["reward"], row["logprobs"], row["mask"]) == (1.0, [-0.5, -0.25], [True, True])
        assert (row["weight_versions"], row["components"]) == ([3, 3], {"math": 1.0})

    def test_a_map_alone_asks_for_our_layout(self, tmp_path):
        given = write(tmp_path / "in.jsonl", [{"q": "2+3?", "gen": "5", "n": {"gold": 5}}])
        maps = ["prompt=q", "completion=gen", "answer=n.gold"]
        options = [part for text in maps for part in ("--map", text)]
        assert convert(given, tmp_path / "out.jsonl", *options) == 0
        [row] = rows_of(tmp_path / "out.jsonl")
        assert (row["prompt"], row["completion"], row["answer"]) == ("2+3?", "5", 5)

    def test_a_layout_that_does_not_fit(self, tasks, tmp_path, capsys):
        assert convert(tasks, tmp_path / "out.jsonl", "--from", "messages") == 2
        assert "no column holds messages (columns: id, prompt," in capsys.readouterr().err
        assert convert(tasks, tmp_path / "out.jsonl", "--to", "verl-dump") == 2
        assert "no column holds the completion" in capsys.readouterr().err
        assert not (tmp_path / "out.jsonl").exists()

    def test_columns_that_become_json_text_are_told(self, tmp_path, capsys):
        given = write(tmp_path / "in.jsonl", [{"id": 1, "x": 1}, {"id": 2, "x": "one"}])
        assert convert(given, tmp_path / "out.parquet") == 0
        assert "as JSON text, since types differ from row to row: x" in capsys.readouterr().out
        assert rows_of(tmp_path / "out.parquet") == rows_of(given)


class TestBadRows:
    def test_no_number_cannot_become_json(self, tmp_path, capsys):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = tmp_path / "in.parquet"
        pq.write_table(pa.table({"id": [1, 2, 3], "x": [0.5, float("nan"), 1.0]}), path)
        assert convert(path, tmp_path / "out.jsonl") == 2
        assert f"{path}:2: cannot be written as JSON" in capsys.readouterr().err
        assert convert(path, tmp_path / "out.jsonl", "--on-bad-line", "skip") == 1
        assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [1, 3]

    def test_rejects_of_an_earlier_run_go_with_its_output(self, tmp_path):
        given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        rejects = tmp_path / "out.rejects.jsonl"
        given.write_text('{"id": 1}\n[2]\n')
        assert convert(given, out, "--on-bad-line", "set-aside") == 1
        assert rejects.exists()
        out.unlink()
        assert convert(given, out, "--on-bad-line", "set-aside") == 2  # the old ones stay
        write(given, [{"id": 1}])
        assert convert(given, out, "--on-bad-line", "set-aside", "--overwrite") == 0
        assert not rejects.exists()

    def test_rejects_of_another_output_stay(self, tmp_path):
        given, rejects = tmp_path / "in.jsonl", tmp_path / "out.rejects.jsonl"
        rejects.write_text("those of out.parquet\n")
        write(given, [{"id": 1}])
        assert convert(given, tmp_path / "out.jsonl", "--overwrite") == 0
        assert rejects.exists()

    def test_one_row_is_no_rows(self, tmp_path, capsys):
        given = tmp_path / "in.jsonl"
        given.write_text('{"id": 1}\n{"id": 2, "x\n')
        assert convert(given, tmp_path / "out.jsonl", "--on-bad-line", "set-aside") == 1
        told = capsys.readouterr()
        assert told.out == f"1 row -> {tmp_path / 'out.jsonl'}\n"
        rejects = tmp_path / "out.rejects.jsonl"
        assert told.err.splitlines() == [
            f"1 bad row was left out, set aside in {rejects}:",
            f"  {given}:2: bad JSON: Unterminated string starting at at column 11",
        ]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ('{"id": 2,', "at column"),
            ('{"id": ', "Expecting value at column 7"),
            ('{"id": 2} {', "Extra data at column 11"),
            ('{"id": 2, "id": 3}', "key 'id' stands there twice"),
        ],
    )
    def test_a_cut_line_is_told_of_as_scoring_tells_of_it(self, tmp_path, capsys, line, reason):
        given = tmp_path / "in.jsonl"
        given.write_text(f'{{"completion": "1", "answer": "1"}}\r\n{line}\r\n')
        assert convert(given, tmp_path / "out.jsonl") == 2
        told = capsys.readouterr().err
        assert told.startswith(f"rlgym: {given}:2: bad JSON: ")
        assert reason in told
        argv = ["score", str(given), "--reward", "exact_match", "--on-bad-line", "error"]
        assert main([*argv, "-o", str(tmp_path / "scored.jsonl")]) == 2
        assert capsys.readouterr().err == told

    def test_only_bad_rows_end_it(self, tmp_path, capsys):
        (tmp_path / "in.jsonl").write_text("[1]\n[2]\n")
        code = convert(tmp_path / "in.jsonl", tmp_path / "out.jsonl", "--on-bad-line", "skip")
        assert code == 2
        assert "no row to write (2 bad rows, first: " in capsys.readouterr().err


def test_a_field_is_mapped_once(tmp_path, capsys):
    write(tmp_path / "in.jsonl", [{"a": "1", "b": "2"}])
    flags = ("--map", "completion=a", "--map", "completion=b")
    assert convert(tmp_path / "in.jsonl", tmp_path / "out.jsonl", *flags) == 2
    assert "--map completion is given twice, as 'a' and as 'b'; keep one" in capsys.readouterr().err


def test_a_killed_conversion_leaves_no_half_file(tmp_path):
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(
        b"".join(b'{"id": %d, "text": "%s"}\n' % (i, b"x" * 200) for i in range(10**5))
    )
    process = subprocess.Popen(
        [*COMMAND, str(given), str(out)],
        stdout=subprocess.DEVNULL,
    )
    while not list(tmp_path.glob(".out.jsonl.*.part")):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    assert convert(given, out) == 0
    assert sum(1 for _ in read_rows(out)) == 10**5


def test_progress_on_a_terminal_and_silence_in_a_pipe(tasks, tmp_path):
    command = [*COMMAND, str(tasks)]
    leader, follower = pty.openpty()
    try:
        subprocess.run(
            [*command, str(tmp_path / "a.parquet")],
            stderr=follower,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "TERM": "xterm"},
            check=True,
        )
        shown = os.read(leader, 1 << 16).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert "reading types" in shown
    piped = subprocess.run(
        [*command, str(tmp_path / "b.parquet")], capture_output=True, text=True, check=True
    )
    assert piped.stderr == ""
    assert piped.stdout == f"3 rows -> {tmp_path / 'b.parquet'}\n"
