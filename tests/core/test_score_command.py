"""``rlgym score``, as a command: real files, real processes."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm import Completion, Plugins, RewardComposer, Rollout, Task, Turn
from rlgym_llm.cli import main
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.store import write_rollouts

REWARDS = Path(__file__).with_name("offline_rewards.py")
HOSTILE = f"{REWARDS}:hostile"


def command(*arguments: Any) -> list[str]:
    run = "import sys; from rlgym_llm.cli import main; sys.exit(main())"
    return [sys.executable, "-c", run, "score", *map(str, arguments)]


def score(*arguments: Any) -> int:
    return main(["score", *map(str, arguments)])


def write_rows(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    with path.open(encoding="utf-8") as file:
        return [json.loads(line, parse_constant=refuse) for line in file]


def plain(number: int, completion: str = "4") -> dict[str, Any]:
    return {"id": number, "prompt": f"q{number // 4}", "completion": completion, "answer": "4"}


def strip_times(summary: dict[str, Any]) -> dict[str, Any]:
    for part in summary["components"].values():
        del part["seconds"]
    del summary["seconds"], summary["slowest"], summary["run"], summary["output"]
    return summary


# -- the straight path ---------------------------------------------------------------------------


def test_every_label_is_matched_in_one_command(
    test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = test_data / "data/gsm8k/example_model_solutions.jsonl"
    out = tmp_path / "scored.jsonl"
    assert score(source, "--reward", "math", "-o", out) == 0
    rows = read_rows(out)
    assert len(rows) == 5276
    assert all((row["rlgym"]["reward"] == 1.0) is row["is_correct"] for row in rows)
    assert list(rows[0]) == [
        *("question", "ground_truth", "id", "model", "completion", "is_correct", "rlgym")
    ]
    printed = capsys.readouterr().out
    assert "math agrees with 5,276 of 5,276 labels" in printed
    summary = json.loads((tmp_path / "scored.summary.json").read_text())
    assert summary["accuracy"]["labels"] == {
        "agree": 5276,
        "false_positives": 0,
        "false_negatives": 0,
        "unjudged": 0,
    }
    assert summary["groups"]["count"] == 1319
    # Of 4 samples each, drawing all: a group is solved where any sample is right.
    solved = {row["question"] for row in rows if row["is_correct"]}
    assert summary["accuracy"]["pass_at_k"]["4"]["mean"] == pytest.approx(len(solved) / 1319)
    assert summary["reward"]["mean"] == pytest.approx(sum(r["is_correct"] for r in rows) / 5276)
    assert not (tmp_path / "scored.jsonl.work").exists()


def test_the_bytes_of_a_row_stay_as_they_are(tmp_path: Path) -> None:
    odd = (
        '{ "id" : 1.50, "prompt":"2+2?","completion":"\\u0034" ,"answer":4,  "x":[1e2, {"ö":"ü"}] }'
    )
    source = write_rows(tmp_path / "in.jsonl", [odd])
    assert score(source, "--reward", "exact_match", "-o", tmp_path / "out.jsonl") == 0
    line = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert line.startswith(odd[:-1] + ',"rlgym":{"schema_version":1,"reward":1.0,')
    assert line.endswith("}}}}\n")


def test_one_worker_and_two_write_the_same_bytes(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(n, str(n % 7)) for n in range(500)])
    found = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}.jsonl"
        rewards = ["--reward", "exact_match", "--reward", f"{HOSTILE}=0.1"]
        code = score(source, *rewards, "-o", out, "--workers", workers, "--chunk-bytes", 3000)
        assert code == 0
        summary = json.loads((tmp_path / f"{workers}.summary.json").read_text())
        found.append((out.read_bytes(), strip_times(summary)))
    assert found[0] == found[1]


def test_output_is_in_the_order_of_the_input(tmp_path: Path, bug_report: Any) -> None:
    case = bug_report("data-output_order_and_join_key")
    ids = [*case["input"]["ids"], case["input"]["ids"][0]]  # a name twice is fine
    rows = [{**plain(0, "x" * (9 - n)), "id": name} for n, name in enumerate(ids)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    # One line a chunk, so that workers finish in any order.
    score(source, "--reward", HOSTILE, "-o", out, "--workers", 2, "--chunk-bytes", 1)
    scored = read_rows(out)
    assert [row["id"] for row in scored] == [*case["right"]["values"]["order"], ids[0]]
    assert [row["rlgym"]["reward"] for row in scored] == [9.0, 8.0, 7.0, 6.0]


def test_layouts_and_columns_are_found_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    source = write_rows(tmp_path / "chat.jsonl", [{"messages": chat, "answer": "4"}])
    assert score(source, "--reward", "exact_match", "-o", tmp_path / "a.jsonl") == 0
    assert read_rows(tmp_path / "a.jsonl")[0]["rlgym"]["reward"] == 1.0
    source = write_rows(tmp_path / "odd.jsonl", [{"asked": "2+2?", "said": "4", "right": "4"}])
    assert score(source, "--reward", "exact_match") == 2
    assert "--map completion=COLUMN" in capsys.readouterr().err
    mapping = ["--map", "completion=said", "--map", "answer=right", "--map", "prompt=asked"]
    assert score(source, "--reward", "exact_match", *mapping) == 0
    assert read_rows(tmp_path / "odd.scored.jsonl")[0]["rlgym"]["reward"] == 1.0
    assert score(source, "--reward", "exact_match", "--map", "completion=said") == 2
    assert "no column holds the answer" in capsys.readouterr().err


def test_an_environment_brings_its_rewards(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [{**plain(1), "completion": "2 + 2\n#### 4"}])
    assert score(source, "--env", "math-gsm8k", "-o", tmp_path / "out.jsonl") == 0
    card = read_rows(tmp_path / "out.jsonl")[0]["rlgym"]
    assert {name: part["weight"] for name, part in card["components"].items()} == {
        "math": 1.0,
        "format": 0.2,
        "lenient": 0.0,
    }
    assert card["reward"] == 1.2


def test_rewards_files_gates_evaluation_weights_and_steps(tmp_path: Path) -> None:
    (tmp_path / "rewards.yaml").write_text(
        "rewards:\n  components:\n"
        "    right: {reward: exact_match, weight: 1.0, schedule: {linear: [1.0, 0.0, 10]}}\n"
        "    short: {reward: length, weight: -0.5, eval_weight: 0, options: {unit: chars},\n"
        "            gate: {on: right, op: '>=', value: 1.0}}\n"
    )
    source = write_rows(tmp_path / "in.jsonl", [plain(1, "4"), plain(2, "5")])
    rewards = ["--rewards", tmp_path / "rewards.yaml"]
    for flags, right, wrong in (
        ([], 0.5, 0.0),
        (["--step", 5], 0.0, 0.0),
        (["--eval", "--step", 5], 1.0, 0.0),
    ):
        assert score(source, *rewards, *flags, "-o", tmp_path / "o.jsonl", "--overwrite") == 0
        cards = [row["rlgym"] for row in read_rows(tmp_path / "o.jsonl")]
        assert [card["reward"] for card in cards] == [right, wrong]
        assert cards[1]["components"]["short"]["status"] == "skipped"


def test_a_runs_own_configuration_is_a_rewards_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trainer: {seed: 0}\nrewards: {exact_match: 2.0}\n")
    source = write_rows(tmp_path / "in.jsonl", [plain(1, "4")])
    out = tmp_path / "o.jsonl"
    assert score(source, "--rewards", tmp_path / "config.yaml", "-o", out) == 0
    assert read_rows(out)[0]["rlgym"]["reward"] == 2.0


def test_groups_reach_a_reward_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**plain(n), "prompt": f"q{n // 5}"} for n in range(200)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    flags = ["--reward", f"{REWARDS}:siblings"]
    assert score(source, *flags, "-o", tmp_path / "o.jsonl", "--chunk-bytes", 150) == 0
    assert {row["rlgym"]["reward"] for row in read_rows(tmp_path / "o.jsonl")} == {5.0}
    source = write_rows(tmp_path / "torn.jsonl", [*rows, rows[0]])
    assert score(source, *flags, "-o", tmp_path / "p.jsonl", "--chunk-bytes", 150) == 2
    told = capsys.readouterr().err
    assert "line 201 belongs to the group of line 1" in told
    assert "sort the file by group" in told
    assert score(source, *flags, "-o", tmp_path / "q.jsonl") == 2  # all in one chunk
    assert "line 201" in capsys.readouterr().err


def test_a_group_reward_that_returns_too_few_fails_its_group(tmp_path: Path) -> None:
    rows = [plain(n, "SHORT" if n == 5 else "4") for n in range(12)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    assert score(source, "--reward", f"{REWARDS}:too_few", "-o", tmp_path / "o.jsonl") == 1
    cards = [row["rlgym"] for row in read_rows(tmp_path / "o.jsonl")]
    assert [card["reward"] for card in cards] == [1.0] * 4 + [None] * 4 + [1.0] * 4
    assert "returned 3 scores for 4 rollouts" in cards[4]["error"]


def test_online_and_offline_scores_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    components = {
        "exact_match": 0.1,
        "format": {"weight": 0.7, "options": {"style": "hash"}},
        "length": {"weight": -1 / 3, "options": {"unit": "tokens"}, "transform": [{"scale": 0.01}]},
    }
    rollouts = [
        Rollout(
            id=f"r{n}",
            task=Task(prompt=f"q{n // 4}", answer="4"),
            group_id=f"g{n // 4}",
            sample_index=n % 4,
            seed=n,
            turns=(
                Turn(
                    new_prompt_token_ids=(1, 2),
                    completion=Completion(
                        text=("2 + 2\n#### 4", "4", "#### 5", "")[n % 4],
                        token_ids=(3,) * (1 + n % 17),
                    ),
                ),
            ),
            terminated=True,
        )
        for n in range(200)
    ]
    write_rollouts(tmp_path / "rollouts.jsonl", rollouts)
    (tmp_path / "rewards.yaml").write_text(json.dumps({"components": components}))
    flags = ["--rewards", tmp_path / "rewards.yaml", "--workers", 2, "--chunk-bytes", 5000]
    assert score(tmp_path / "rollouts.jsonl", *flags, "-o", tmp_path / "o.jsonl") == 0
    config = RewardsConfig.model_validate({"components": components})
    with RewardComposer(config, Plugins.discover()) as composer:
        cards = composer(rollouts)
    for row, card in zip(read_rows(tmp_path / "o.jsonl"), cards, strict=True):
        assert row["rlgym"]["reward"] == card.reward  # floats, so to the last bit
        for name, part in card.components.items():
            found = row["rlgym"]["components"][name]
            assert (found["raw"], found["transformed"], found["contribution"]) == (
                part.raw,
                part.transformed,
                part.contribution,
            )
            assert found["info"] == json.loads(json.dumps(part.info))


# -- bad lines -----------------------------------------------------------------------------------


def bad_lines(tmp_path: Path) -> Path:
    path = tmp_path / "bad.jsonl"
    good = [json.dumps(plain(n)).encode() for n in range(3)]
    lines = [
        b"\xef\xbb\xbf" + good[0] + b"\r",
        b"",
        b'{"id":2,',
        b"[3]",
        b'{"prompt": "q", "completion": "\xff"}',
        b'{"prompt": "q", "completion": "4", "x": NaN}',
        b'{"prompt": "q", "completion": "4", "completion": "5"}',
        b'{"prompt": "q", "completion": "4", "rlgym": 1}',
        b'{"prompt": "q"}',
        b'{"prompt": "", "completion": "4"}',
        b"[" * 100_000,
        good[1],
        b"   ",
        good[2],  # no end of line
    ]
    path.write_bytes(b"\n".join(lines))
    return path


def test_bad_lines_are_set_aside_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = bad_lines(tmp_path)
    assert score(source, "--reward", "exact_match", "-o", tmp_path / "o.jsonl") == 1
    assert [row["id"] for row in read_rows(tmp_path / "o.jsonl")] == [0, 1, 2]
    rejects = read_rows(tmp_path / "o.rejects.jsonl")
    assert [reject["line"] for reject in rejects] == list(range(3, 12))
    assert {reject["file"] for reject in rejects} == {str(source)}
    reasons = [reject["reason"] for reject in rejects]
    assert reasons[0].startswith("bad JSON: ")
    assert reasons[1:7] == [
        "expected a JSON object, got list",
        "no UTF-8: invalid start byte at byte 32",
        "bad JSON: NaN is not JSON",
        "bad JSON: key 'completion' stands there twice",
        "column 'rlgym' is there already",
        "the row has no completion (column 'completion'; its columns: prompt)",
    ]
    assert "the prompt is empty" in reasons[7]
    assert reasons[8] == "bad JSON: nested too deeply"
    assert rejects[2]["text"].endswith('"completion": "\\xff"}')
    assert "9 bad lines set aside" in capsys.readouterr().out


def test_bad_lines_end_the_run_or_are_passed_over_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = bad_lines(tmp_path)
    flags = ["--reward", "exact_match", "-o", tmp_path / "o.jsonl"]
    assert score(source, *flags, "--on-bad-line", "error") == 2
    assert f"{source}:3: bad JSON" in capsys.readouterr().err
    assert not (tmp_path / "o.jsonl").exists()
    shutil.rmtree(tmp_path / "o.jsonl.work")
    assert score(source, *flags, "--on-bad-line", "skip") == 1
    assert len(read_rows(tmp_path / "o.jsonl")) == 3
    assert not (tmp_path / "o.rejects.jsonl").exists()


def test_a_file_without_rows_gives_a_file_without_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("empty", ""), ("blank", "\n \n")):
        source = tmp_path / f"{name}.jsonl"
        source.write_text(text)
        assert score(source, "--reward", "exact_match") == 0
        assert (tmp_path / f"{name}.scored.jsonl").read_bytes() == b""
    source.write_text("[]\n{\n")
    assert score(source, "--reward", "exact_match", "-o", tmp_path / "o.jsonl") == 2
    assert "holds no row that can be read; first: line 1" in capsys.readouterr().err


def test_any_script_and_half_a_surrogate_pair(tmp_path: Path) -> None:
    texts = ["四 👍🏽 \u2028 é", "\ud800", "ﬁ\u0000"]
    rows = [json.dumps({"prompt": "q", "completion": text, "answer": text}) for text in texts]
    source = write_rows(tmp_path / "in.jsonl", rows)
    flags = ["--reward", "exact_match", "--reward", f"{REWARDS}:odd_info"]
    assert score(source, *flags, "-o", tmp_path / "o.jsonl") == 0
    scored = read_rows(tmp_path / "o.jsonl")
    assert [row["completion"] for row in scored] == texts
    assert [row["rlgym"]["reward"] for row in scored] == [2.0, 2.0, 2.0]
    info = {"nan": None, "set": ["a", "b"], "half": "\ud800", "object": "(object)", "3": [1]}
    assert scored[0]["rlgym"]["components"]["odd_info"]["info"] == info


def test_what_is_not_a_number_is_null_in_the_output(tmp_path: Path, bug_report: Any) -> None:
    case = bug_report("data-nan_in_output_json")
    source = write_rows(tmp_path / "in.jsonl", [plain(0, "NAN"), plain(1)])
    assert score(source, "--reward", HOSTILE, "-o", tmp_path / "o.jsonl") == 1
    card = read_rows(tmp_path / "o.jsonl")[0]["rlgym"]  # a strict parser reads it
    assert card["reward"] is case["right"]["values"]["score"]
    assert "returned nan" in card["error"]
    assert case["right"]["known_wrong"]["text"] not in json.dumps({**card, "error": ""})


# -- rewards that misbehave ----------------------------------------------------------------------


def test_a_row_that_ends_its_process_costs_its_own_score(tmp_path: Path) -> None:
    asked = {7: "HANG", 8: "SIGKILL", 60: "EXIT", 61: "RAISE", 62: "NAN", 63: "TEXT", 64: "EAT"}
    rows = [plain(n, f"{asked.get(n, '')}4") for n in range(150)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    rewards = ["--reward", "exact_match", "--reward", f"{HOSTILE}=0.1"]
    flags = ["--timeout", 4, "--memory", 2000, "-o", tmp_path / "o.jsonl"]
    assert score(source, *rewards, *flags) == 1
    scored = read_rows(tmp_path / "o.jsonl")
    assert [row["id"] for row in scored] == list(range(150))
    for row in scored:
        card, number = row["rlgym"], row["id"]
        right = card["components"]["exact_match"]
        assert right["status"] == "ok"
        assert right["raw"] == float(number not in asked)
        if number not in asked:
            assert card["reward"] == 1.1
    errors = {n: scored[n]["rlgym"]["components"]["hostile"] for n in asked}
    assert {n: part["status"] for n, part in errors.items()} == {
        **dict.fromkeys(asked, "error"),
        7: "timeout",
    }
    for number, words in {
        7: "over its deadline of 4 s",
        8: "its process died: the worker was killed by signal 9 (SIGKILL)",
        60: "its process died: the worker left with exit code 3",
        61: "ValueError: no",
        62: "returned nan",
        63: "returned a str",
        64: "MemoryError",
    }.items():
        assert words in errors[number]["error"]
        assert f"reward 'hostile' on rollout '{number}'" in errors[number]["error"]
    summary = json.loads((tmp_path / "o.summary.json").read_text())
    assert summary["rows"]["failed_reward"] == len(asked)
    assert summary["components"]["hostile"]["statuses"]["timeout"] == 1


def test_a_row_that_holds_the_interpreter_is_ended_too(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(0), plain(1, "SPIN"), plain(2)])
    flags = ["--timeout", 3, "-o", tmp_path / "o.jsonl"]
    assert score(source, "--reward", HOSTILE, *flags) == 1
    cards = [row["rlgym"] for row in read_rows(tmp_path / "o.jsonl")]
    assert [card["reward"] for card in cards] == [1.0, None, 1.0]
    assert cards[1]["components"]["hostile"]["status"] == "timeout"


def test_one_row_in_a_hundred_hostile_and_one_malformed(tmp_path: Path) -> None:
    rows: list[Any] = [plain(n) for n in range(1000)]
    for n in range(50, 1000, 100):
        rows[n] = plain(n, "#### 9^{9^{9^9}}" if n % 200 == 50 else "\\boxed{" * 2000)
        rows[n + 7] = '{"id": ' + str(n)
    source = write_rows(tmp_path / "in.jsonl", rows)
    flags = ["--reward", "math", "--reward", f"{HOSTILE}=0"]
    assert score(source, *flags, "-o", tmp_path / "o.jsonl") == 1
    scored = read_rows(tmp_path / "o.jsonl")
    assert len(scored) == 990
    assert all(row["rlgym"]["reward"] == 1.0 for row in scored if row["completion"] == "4")
    hostile = [row["rlgym"]["reward"] for row in scored if row["completion"] != "4"]
    assert hostile == [0.0] * 10
    assert len(read_rows(tmp_path / "o.rejects.jsonl")) == 10


def test_on_error_raise_ends_the_run_naming_the_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.yaml").write_text(
        "on_error: raise\n"
        f"components: {{h: {{reward: function, options: {{path: '{HOSTILE}'}}}}}}\n"
    )
    source = write_rows(tmp_path / "in.jsonl", [plain(0), plain(17, "RAISE")])
    assert score(source, "--rewards", tmp_path / "r.yaml", "-o", tmp_path / "o.jsonl") == 1
    assert capsys.readouterr().err == "rlgym: reward 'h' on rollout '17': ValueError: no\n"
    assert not (tmp_path / "o.jsonl").exists()


# -- killed, and started again -------------------------------------------------------------------


def kill_somewhere(arguments: list[str], work: Path, draw: random.Random) -> bool:
    """Starts the command and kills it once it has done some parts; whether it was still running."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    wanted = len(list(work.glob("*.done"))) + draw.randrange(0, 6)
    while process.poll() is None:
        if work.is_dir() and len(list(work.glob("*.done"))) >= wanted:
            time.sleep(draw.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    return process.wait() == -signal.SIGKILL


def test_a_run_that_is_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    rows: list[Any] = [plain(n, str(n % 9) * (n % 50)) for n in range(3000)]
    rows[1000] = rows[2222] = "{"
    source = write_rows(tmp_path / "in.jsonl", rows)
    flags = ["--reward", "exact_match", "--reward", f"{HOSTILE}=0.1", "--chunk-bytes", 4000]
    assert score(source, *flags, "-o", tmp_path / "whole.jsonl") == 1
    arguments = command(source, *flags, "-o", tmp_path / "o.jsonl", "--workers", 2)
    draw = random.Random(4)
    kills = 0
    while kills < 8 and kill_somewhere(arguments, tmp_path / "o.jsonl.work", draw):
        kills += 1
    finished = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert finished.returncode == 1, finished.stderr
    assert kills >= 3
    assert (tmp_path / "o.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert Counter(row["id"] for row in read_rows(tmp_path / "o.jsonl")).most_common(1)[0][1] == 1
    rejects = (tmp_path / "o.rejects.jsonl").read_bytes()
    assert rejects == (tmp_path / "whole.rejects.jsonl").read_bytes()
    summaries = [
        strip_times(json.loads((tmp_path / f"{name}.summary.json").read_text()))
        for name in ("o", "whole")
    ]
    assert summaries[0] == summaries[1]
    assert not (tmp_path / "o.jsonl.work").exists()


def stop_early(source: Path, out: Path, *flags: Any) -> None:
    """Leaves the work folder of a run behind: a bad line ends it."""
    assert score(source, *flags, "-o", out, "--on-bad-line", "error", "--chunk-bytes", 200) == 2
    assert (out.parent / f"{out.name}.work" / "manifest.json").exists()


def test_another_run_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [*map(plain, range(20)), "{"])
    out = tmp_path / "o.jsonl"
    stop_early(source, out, "--reward", "exact_match")
    capsys.readouterr()
    assert score(source, "--reward", "exact_match=0.5", "-o", out) == 2
    told = capsys.readouterr().err
    assert "had other rewards (rewards.components.exact_match.weight: 1.0 -> 0.5): give" in told
    assert "--overwrite to drop it" in told
    assert score(source, "--reward", "exact_match=0.5", "-o", out, "--overwrite") == 1
    assert read_rows(out)[0]["rlgym"]["reward"] == 0.5


def test_an_output_is_only_replaced_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(0)])
    out = tmp_path / "o.jsonl"
    assert score(source, "--reward", "exact_match", "-o", out) == 0
    written = out.stat().st_mtime_ns
    assert score(source, "--reward", "exact_match", "-o", out) == 0  # it is there already
    assert "scored before" in capsys.readouterr().out
    assert out.stat().st_mtime_ns == written
    assert score(source, "--reward", "exact_match=2", "-o", out) == 2
    assert "exists already: give --overwrite" in capsys.readouterr().err
    assert score(source, "--reward", "exact_match=2", "-o", out, "--overwrite") == 0
    assert read_rows(out)[0]["rlgym"]["reward"] == 2.0
    assert score(source, "--reward", "exact_match", "-o", source) == 2
    assert "is an input and the output too" in capsys.readouterr().err
    assert score(out, "--reward", "exact_match") == 2
    assert "--score-column" in capsys.readouterr().err
    again = ["--score-column", "second", "-o", tmp_path / "p.jsonl"]
    assert score(out, "--reward", "exact_match", *again) == 0
    assert [*read_rows(tmp_path / "p.jsonl")[0]][-2:] == ["rlgym", "second"]


def test_a_changed_input_is_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_rows(tmp_path / "in.jsonl", [*map(plain, range(20)), "{"])
    out = tmp_path / "o.jsonl"
    stop_early(source, out, "--reward", "exact_match")
    write_rows(source, [plain(0)])
    capsys.readouterr()
    assert score(source, "--reward", "exact_match", "-o", out) == 2
    assert "had other inputs (inputs.0.size: " in capsys.readouterr().err


# -- parquet -------------------------------------------------------------------------------------


def test_parquet_in_and_out_keeps_the_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "id": pa.array(range(50), pa.int32()),
            "prompt": [f"q{n // 2}" for n in range(50)],
            "completion": [str(n % 5) if n != 9 else None for n in range(50)],
            "answer": pa.array(["4"] * 50).dictionary_encode(),
            "gold": pa.array([3, None] * 25, pa.int64()),
        }
    ).replace_schema_metadata({"huggingface": '{"info": {"features": {"_type": "List"}}}'})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=20)
    flags = ["--reward", "exact_match", "--chunk-bytes", 300]
    assert score(tmp_path / "in.parquet", *flags, "-o", tmp_path / "o.parquet") == 1
    found = pq.read_table(tmp_path / "o.parquet")
    kept = table.take([n for n in range(50) if n != 9]).replace_schema_metadata(None)
    assert found.drop(["rlgym"]).equals(kept)
    cards = found["rlgym"].to_pylist()
    rewards = [card["reward"] for card in cards]
    assert rewards == [float(n % 5 == 4) for n in range(50) if n != 9]
    assert cards[0]["components"]["exact_match"]["info"] == '{"answer": "0"}'
    assert read_rows(tmp_path / "o.rejects.jsonl")[0]["line"] == 10

    assert score(tmp_path / "in.parquet", *flags, "-o", tmp_path / "o.jsonl") == 1
    scored = read_rows(tmp_path / "o.jsonl")
    assert [row["rlgym"]["reward"] for row in scored] == rewards
    assert scored[0]["gold"] == 3
    assert scored[1]["gold"] is None


def test_json_lines_to_parquet_and_groups_of_parquet(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    source = write_rows(tmp_path / "in.jsonl", [plain(n) for n in range(30)])
    flags = ["--reward", "exact_match", "-o", tmp_path / "o.parquet"]
    assert score(source, *flags) == 0
    found = pq.read_table(tmp_path / "o.parquet")
    assert found.column_names == ["id", "prompt", "completion", "answer", "rlgym"]
    assert found["id"].to_pylist() == list(range(30))
    pq.write_table(found.drop(["rlgym"]), tmp_path / "again.parquet")
    flags = ["--reward", f"{REWARDS}:siblings", "--chunk-bytes", 100]
    assert score(tmp_path / "again.parquet", *flags, "-o", tmp_path / "g.jsonl") == 0
    rewards = [row["rlgym"]["reward"] for row in read_rows(tmp_path / "g.jsonl")]
    assert rewards == [4.0] * 28 + [2.0] * 2


# -- diff, and words for people ------------------------------------------------------------------


def test_diff_lists_the_rows_whose_verdict_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [plain(n, "RAISE" if n == 3 else "4" * (n + 1)) for n in range(6)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    assert score(source, "--reward", f"{HOSTILE}=1", "-o", tmp_path / "old.jsonl") == 1
    old = read_rows(tmp_path / "old.jsonl")
    for row, reward in zip(old, [1.0, 9.0, 0.0, 5.0, None, 6.0], strict=True):
        row["rlgym"]["reward"] = reward
    for name, stored in (("same.jsonl", old), ("sorted.jsonl", old[::-1])):
        was = write_rows(tmp_path / name, stored)
        flags = ["-o", tmp_path / "new.jsonl", "--diff", was]
        assert score(source, "--reward", f"{HOSTILE}=1", *flags) == 1
        told = capsys.readouterr().out
        assert "reward changed on 4 rows: 1 up, 1 down, 1 judged now and not then" in told
        assert "1 judged then and not now" in told
        assert "  row 2 (id 1): 9.0 -> 2.0\n" in told
        changed = read_rows(tmp_path / "new.diff.jsonl")
        found = {(row["row"], row["id"], row["old"], row["new"]) for row in changed}
        assert found == {(2, 1, 9.0, 2.0), (3, 2, 0.0, 3.0), (4, 3, 5.0, None), (5, 4, None, 5.0)}


def test_one_of_a_kind_is_told_of_in_the_singular(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**plain(n), "is_correct": n == 1} for n in range(2)]  # both are right
    source = write_rows(tmp_path / "in.jsonl", [*rows, "{"])
    flags = ["--reward", "exact_match"]
    assert score(source, *flags, "-o", tmp_path / "old.jsonl") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "2 rows, 2 scored, 1 bad line set aside"
    assert "exact_match agrees with 1 of 2 labels (1 false positive, 0 false negatives)" in told
    assert "1 group: pass@1 100.0%, pass@2 100.0%" in told
    assert any(line.startswith("bad line: 1 x bad JSON: ") for line in told)
    old = read_rows(tmp_path / "old.jsonl")
    old[1]["rlgym"]["components"]["exact_match"]["raw"] = 0.5
    was = write_rows(tmp_path / "was.jsonl", old)
    assert score(source, *flags, "-o", tmp_path / "new.jsonl", "--diff", was) == 1
    assert "exact_match changed on 1 row: 1 up\n  row 2 (id 1): 0.5 -> 1.0\n" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("arr.json", "run rlgym data convert {path} out.jsonl, then score out.jsonl"),
        ("rows.jsonl.gz", "run rlgym data convert {path} out.jsonl, then score out.jsonl"),
        ("rows.csv", "not .csv: give it the ending of what it holds (rlgym data convert {path} "),
        ("arr.jsonl", "name it {folder}/arr.json, run rlgym data convert {folder}/arr.json out"),
    ],
)
def test_files_that_cannot_be_scored_name_the_command_that_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, way_out: str
) -> None:
    path = tmp_path / name
    path.write_text("[\n" + ",\n".join(json.dumps(plain(n)) for n in range(2)) + "\n]\n")
    assert score(path, "--reward", "exact_match", "-o", tmp_path / "o.jsonl") == 2
    assert way_out.format(path=path, folder=tmp_path) in capsys.readouterr().err


def test_the_command_that_helps_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, lines = tmp_path / "an array.json", tmp_path / "out.jsonl"
    path.write_text(json.dumps([plain(0), plain(1)]))
    flags = ["--reward", "exact_match", "-o", tmp_path / "o.jsonl"]
    assert score(path, *flags) == 2
    command = re.search("run rlgym (.*), then", capsys.readouterr().err)
    assert command is not None
    assert main([str(lines) if w == "out.jsonl" else w for w in shlex.split(command[1])]) == 0
    assert score(lines, *flags) == 0
    assert len(read_rows(tmp_path / "o.jsonl")) == 2


def test_an_output_whose_ending_says_another_format_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(0)])
    for name, ending in (("o.jsonl.gz", ".gz"), ("o", "without any")):
        assert score(source, "--reward", "exact_match", "-o", tmp_path / name) == 2
        assert f"{name}: an output ends in .jsonl, .ndjson, .json, .parquet, .pq, not {ending}" in (
            capsys.readouterr().err
        )


def test_a_parquet_by_its_short_ending_is_compared_too(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(0)])
    assert score(source, "--reward", "exact_match", "-o", tmp_path / "a.pq") == 0
    flags = ["-o", tmp_path / "b.pq", "--diff", tmp_path / "a.pq"]
    assert score(source, "--reward", "exact_match", *flags) == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no reward is configured"),
        (["--reward", "mth"], "unknown reward 'mth'; did you mean 'math'?"),
        (["--reward", "math", "--accuracy", "maths"], "unknown component 'maths'"),
        (["--reward", "math", "--option", "math.extracton=strict"], "no option 'extracton'"),
        (["--reward", "math", "--map", "completion"], "--map takes FIELD=COLUMN"),
        (
            ["--reward", "math", "--reward", "math=0.5"],
            "reward 'math' is given twice, as 'math' and as 'math=0.5'; keep one",
        ),
        (
            ["--reward", "math", *["--option", "math.form=value"] * 2],
            "--option math.form is given twice, as 'math.form=value' and as 'math.form=value'",
        ),
        (["--rewards", "absent.yaml"], "rlgym: absent.yaml: there is no such file"),
        (["--reward", "math", "--workers", "0"], "argument --workers: must be at least 1, got 0"),
        (["--reward", "math", "--k", "two"], "--k: invalid list of numbers value: 'two'"),
        (["--reward", "math", "--timeout", "0"], "--timeout: must be above 0"),
        (["--reward", "math", "--step", "-1"], "--step: must be at least 0, got -1"),
        (["--reward", "math", "-o", "no/such/folder/o.jsonl"], "there is no folder no/such/folder"),
    ],
)
def test_what_was_typed_wrong_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(0)])
    os.chdir(tmp_path)
    assert score(source, *flags) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


@pytest.fixture(autouse=True)
def _same_folder_after() -> Iterator[None]:
    here = Path.cwd()
    yield
    os.chdir(here)


def test_a_missing_file_and_a_folder_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(tmp_path / "none.jsonl", "--reward", "math") == 2
    assert "no such file" in capsys.readouterr().err
    assert score(tmp_path, "--reward", "math") == 2
    assert "this is a folder" in capsys.readouterr().err


def test_a_full_disk_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(n) for n in range(2000)])
    arguments = command(source, "--reward", "exact_match", "-o", tmp_path / "o.jsonl")
    # A limit on the size of files stands for a disk that is full: writing fails half-way.
    finished = subprocess.run(
        ["bash", "-c", 'ulimit -f 64; trap "" XFSZ; exec "$@"', "bash", *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.returncode in (1, 2)
    assert "File too large" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "o.jsonl").exists()


def test_json_says_the_same_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_rows(tmp_path / "in.jsonl", [plain(n, "45"[n % 2]) for n in range(8)])
    flags = ["--reward", "exact_match", "-o", tmp_path / "o.jsonl", "--json", "--k", "1,2"]
    assert score(source, *flags) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"]["scored"] == 8
    # Two groups of four, two right in each: pass@2 = 1 - C(2,2)/C(4,2) = 5/6.
    assert summary["accuracy"]["pass_at_k"]["1"]["mean"] == 0.5
    assert summary["accuracy"]["pass_at_k"]["2"]["mean"] == pytest.approx(5 / 6)
    assert summary["sample"] == 8
