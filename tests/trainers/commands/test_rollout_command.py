"""`rlgym rollout` as a person runs it: real model, killed and continued; scripted ones by hand."""

from __future__ import annotations

import fcntl
import io
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from rlgym_llm_trainers.commands.progress_bar import ProgressBar, open_bar
from rlgym_llm_trainers.commands.rollout_cli import main, rollout_parser
from rlgym_llm_trainers.commands.rollout_settings import read_settings

from rlgym_llm.cli import main as rlgym
from rlgym_llm.config import format_config, parse_command
from rlgym_llm.rows.file_format import read_rows
from rlgym_llm.store import decode_record, read_rollouts
from rlgym_llm.types import RolloutStatus

PLUGIN = """
    import asyncio, os, signal
    from dataclasses import dataclass
    from pathlib import Path
    from rlgym_llm import Reward, Score, hookimpl
    from rlgym_llm.errors import GeneratorError, UserError
    from rlgym_llm.scripted_generator import ScriptedGenerator
    from rlgym_llm.multi_turn import MultiTurnEnv
    from rlgym_llm.specs import EnvSpec, GeneratorSpec, RewardSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.types import Message, Task

    HERE = Path(__file__).parent

    class Script:
        "Says a number that its seed tells, one request at a time: an AsyncGenerator only."
        has_own_weights = True
        policy_version = 0

        def __init__(self, policy, config):
            self.scripted = ScriptedGenerator(lambda context: "")
            self.encode_prompt = self.scripted.encode_prompt
            self.encode_reply = self.scripted.encode_reply
            self.num_begun = self.num_running = self.num_ended = 0

        def sync(self, version):
            return {}

        async def sample(self, request):
            self.num_begun += 1
            self.num_running += 1
            try:
                with (HERE / "calls").open("a") as file:
                    file.write(f"{self.num_running}\\n")
                await self.before(self.num_begun, request)
                await asyncio.sleep(request.seed % 5 / 1000)
                self.num_ended += 1
                return self.scripted._completion(f"#### {request.seed % 3 + 4}", 99)
            finally:
                self.num_running -= 1

        async def before(self, number, request):
            pass

        async def aclose(self):
            pass

        def close(self):
            pass

    class Slow(Script):
        "The first request waits until 20 others have ended."
        async def before(self, number, request):
            while number == 1 and self.num_ended < 20:
                await asyncio.sleep(0.001)

    class Killed(Script):
        async def before(self, number, request):
            if number == 20 and not (HERE / "mended").exists():
                os.kill(os.getpid(), signal.SIGKILL)

    class Interrupted(Script):
        async def before(self, number, request):
            if number == 1 and not (HERE / "mended").exists():
                os.kill(os.getpid(), signal.SIGINT)

    class Fails(Script):
        "A third of the requests."
        async def before(self, number, request):
            if request.seed % 3 == 0 and not (HERE / "mended").exists():
                raise GeneratorError("the worker died")

    class Down(Script):
        async def before(self, number, request):
            if not (HERE / "mended").exists():
                raise GeneratorError("the engine is down")

    class Refused(Script):
        async def before(self, number, request):
            raise UserError("the server knows no such model")

    class Batches(ScriptedGenerator):
        "A Generator only."
        has_own_weights = False
        sample = None

        def __init__(self, policy, config):
            super().__init__(["#### 5", "none"])

        def sync(self, version):
            return {}

        def generate(self, requests):
            with (HERE / "calls").open("a") as file:
                file.write(f"{len(requests)}\\n")
            with (HERE / "saved").open("a") as file:
                file.write(f"{len((HERE / 'out.jsonl').read_bytes().splitlines())}\\n")
            return super().generate(requests)

    @dataclass(frozen=True, kw_only=True)
    class Share(Reward):
        "The share of the siblings' characters."
        name = "share"
        scope = "group"
        range = (0, 1)

        def score_group(self, group, ctx):
            total = sum(len(rollout.text) for rollout in group.rollouts)
            return [Score(name=self.name, value=len(r.text) / total) for r in group.rollouts]

    class Turns(MultiTurnEnv[int]):
        "The task says how many turns it takes."

        def __init__(self, **options):
            asked = [(Message(role="user", content=f"{n} turns"),) for n in (1, 2, 3)]
            tasks = [Task(prompt=prompt, answer=str(n + 1)) for n, prompt in enumerate(asked)]
            super().__init__(tasks=ListTasks(tasks), **options)

        def start(self, task):
            return int(task.answer)

        def respond(self, state, action):
            self.state -= 1
            return "Go on." if self.state else None

    @hookimpl
    def rlgym_register(kind):
        if kind == "env":
            return [
                EnvSpec(name="turns", entry_point=f"{__name__}:Turns"),
                EnvSpec(name="mix", entry_point="rlgym_llm.mixture:Mixture"),
                EnvSpec(name="sums", entry_point="rlgym_llm_envs.arithmetic:ArithmeticEnv"),
            ]
        if kind == "reward":
            return [RewardSpec(name="share", entry_point=f"{__name__}:Share")]
        if kind != "generator":
            return []
        return [
            GeneratorSpec(name=c.__name__.lower(), entry_point=f"{__name__}:{c.__name__}")
            for c in (Script, Slow, Killed, Interrupted, Fails, Down, Refused, Batches)
        ]
"""
ONE_THREAD = ["--trainer.num_threads", "1"]


def collect(output: Path, *flags: str) -> int:
    return main(["--output", str(output), *ONE_THREAD, *flags])


def records(file: Path):
    """What is stored, by (task, sample), and whole."""
    stored = read_rollouts(file)
    assert stored.torn_line is None
    by_sample = {(r.rollout.task.id, r.rollout.sample_index): r for r in stored.records}
    assert len(by_sample) == len(stored.records)
    return by_sample


@contextmanager
def no_file_above(size: int):
    """The system lets no file of this process grow further: the error of a full disk, nearly."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def summary(file: Path) -> dict:
    found = json.loads(file.with_suffix(".summary.json").read_text())
    del found["timing"]
    return found


def run_alone(output: Path, *flags: str) -> subprocess.Popen:
    words = [
        sys.executable,
        "-m",
        "rlgym_llm_trainers.commands.rollout_cli",
        "--output",
        str(output),
    ]
    return subprocess.Popen(
        [*words, *ONE_THREAD, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


class TestStarterModel:
    FLAGS = ("--max-tasks", "24", "--n", "3", "--rollout.max_num_seqs", "3", "--seed", "5")

    def test_sigkill_then_the_same_command_gives_what_one_run_gives(self, tmp_path):
        whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
        assert collect(whole, *self.FLAGS) == 0
        with run_alone(killed, *self.FLAGS) as process:
            while process.poll() is None and (
                not killed.exists() or killed.stat().st_size < 20_000
            ):
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert 0 < killed.read_bytes().count(b"\n") < 72
        with killed.open("r+b") as stored:  # and torn in the middle of a line
            stored.truncate(stored.seek(0, os.SEEK_END) - 100)
        assert collect(killed, *self.FLAGS) == 0
        assert records(killed) == records(whole)
        assert summary(killed) == summary(whole)
        assert summary(whole)["num_rollouts"] == 72

    def test_it_samples_as_training_does_and_leaves_scoring_for_later(self, tmp_path, capsys):
        file, scored = tmp_path / "plain.jsonl", tmp_path / "scored.jsonl"
        flags = ["--max-tasks", "4", "--n", "4", "--rollout.max_num_seqs", "8"]
        assert collect(file, *flags) == 0
        assert json.loads(capsys.readouterr().out)["reward"] == {"mean": None, "count": 0}
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert {(row["reward"], row["card"]) for row in rows} == {(None, None)}
        assert len({row["completion"] for row in rows}) > 4  # sampled, not greedy
        assert all(len(record.rollout.turns[0].completion.logprobs) for record in read(file))
        assert collect(scored, *flags, "--score") == 0
        ours = [json.loads(line)["reward"] for line in scored.read_text().splitlines()]
        assert [r.rollout for r in read(scored)] == [r.rollout for r in read(file)]
        command = ["score", str(file), "--env", "math-gsm8k", "-o", str(tmp_path / "later.jsonl")]
        assert rlgym(command) == 0
        later = (tmp_path / "later.jsonl").read_text().splitlines()
        assert [json.loads(line)["rlgym"]["reward"] for line in later] == ours
        assert len(set(ours)) > 1

    def test_validation_tasks_are_others(self, tmp_path):
        tasks = {}
        for split in ("train", "val"):
            output = tmp_path / split  # a folder
            assert collect(output, "--max-tasks", "3", "--n", "1", "--split", split) == 0
            tasks[split] = {r.rollout.task.id for r in read(output / "rollouts.jsonl")}
        assert [len(tasks["train"]), len(tasks["val"])] == [3, 3]
        assert not tasks["train"] & tasks["val"]


def read(file: Path):
    return read_rollouts(file).records


class TestScripted:
    """Six groups of four. Twice `max_num_seqs` rollouts, which is two groups, are under way."""

    @pytest.fixture
    def flags(self, tmp_path) -> list[str]:
        plugin, data = tmp_path / "mine.py", tmp_path / "rows.jsonl"
        plugin.write_text(textwrap.dedent(PLUGIN))
        rows = [{"question": f"{i} + {5 - i} = ?", "answer": "#### 5"} for i in range(6)]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        flags = ["--plugin", str(plugin), "--data.train", str(data), "--n", "4"]
        return [*flags, "--rollout.name", "script", "--rollout.max_num_seqs", "4"]

    @pytest.fixture
    def file(self, tmp_path) -> Path:
        return tmp_path / "out.jsonl"

    @staticmethod
    def calls(tmp_path) -> list[int]:
        """Requests in flight at each call, or in each batch."""
        file = tmp_path / "calls"
        return list(map(int, file.read_text().split())) if file.exists() else []

    def test_figures_by_hand(self, tmp_path, flags, file, capsys):
        assert collect(file, *flags, "--score", "--reward", "math") == 0
        found = json.loads(capsys.readouterr().out)
        assert found == json.loads(file.with_suffix(".summary.json").read_text())
        seeds = [r.rollout.seed for r in records(file).values()]
        assert len(set(seeds)) == 24
        assert found["reward"] == {"mean": sum(s % 3 == 1 for s in seeds) / 24, "count": 24}
        assert found["tokens"] == {"sum": 24 * 7, "mean": 7.0}  # `#### 5` and the end
        assert found["turns"] == {"1": 24}
        assert found["finish_reasons"] == {"stop": 24}
        assert found["policy_versions"] == {"0": 168}
        assert [found["num_groups"], found["is_complete"]] == [6, True]
        assert found["timing"]["tokens_per_s"] == 168 / found["timing"]["seconds"]

    def test_no_group_waits_for_another_and_a_window_bounds_them(self, tmp_path, flags, file):
        assert collect(file, *flags, "--rollout.name", "slow") == 0
        groups = [r.rollout.group_id for r in read(file)]
        assert len(groups) == 24
        # 20 others ended while the first waited, so its group is the last to be complete.
        assert len(set(groups[:20])) == 5
        assert len(set(groups[20:])) == 1
        assert [groups[place] for place in range(0, 24, 4)] == list(dict.fromkeys(groups))
        assert 1 < max(self.calls(tmp_path)) <= 8

    def test_batches_where_the_generator_takes_batches(self, tmp_path, flags, file):
        flags = [*flags, "--rollout.name", "batches", "--rollout.max_num_seqs", "9"]
        assert collect(file, *flags) == 0
        assert self.calls(tmp_path) == [8, 8, 8]
        before = records(file)
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:9]))  # one of the second batch
        assert collect(file, *flags) == 0
        assert self.calls(tmp_path)[3:] == [8, 8]
        assert records(file) == before

    def test_a_full_disk_names_the_file_and_the_same_command_goes_on(self, flags, file, capsys):
        flags = [*flags, "--rollout.name", "batches", "--rollout.max_num_seqs", "9"]
        assert collect(file, *flags) == 0
        whole = file.read_bytes()
        file.unlink()
        capsys.readouterr()
        with no_file_above(len(whole) // 2):
            assert collect(file, *flags) == 1
        *_, said = capsys.readouterr().err.splitlines()
        assert said == (
            f"rlgym rollout: {file}: cannot be written: File too large; "
            f"{file} holds the rollouts before, and goes on"
        )
        assert collect(file, *flags) == 0
        assert file.read_bytes() == whole

    def test_turns_of_a_batch_and_a_group_is_saved_before_the_others_end(self, tmp_path, file):
        plugin = tmp_path / "mine.py"
        plugin.write_text(textwrap.dedent(PLUGIN))
        flags = ["--plugin", str(plugin), "--env", "turns", "--rollout.name", "batches"]
        assert collect(file, *flags, "--n", "2", "--rollout.max_num_seqs", "6") == 0
        assert self.calls(tmp_path) == [6, 4, 2]
        saved = list(map(int, (tmp_path / "saved").read_text().split()))
        assert saved[0] == 0
        assert saved[2] >= 2  # the group of one turn, for sure
        assert summary(file)["turns"] == {"1": 2, "2": 2, "3": 2}
        assert summary(file)["finish_reasons"] == {"stop": 12}

    def test_the_first_tasks_of_a_mixture_are_of_every_member(self, tmp_path, file):
        plugin = tmp_path / "mine.py"
        plugin.write_text(textwrap.dedent(PLUGIN))
        flags = ["--plugin", str(plugin), "--env", "mix", "--rollout.name", "script", "--n", "1"]
        flags += ["--env.kwargs.envs.turns", "1", "--env.kwargs.envs.sums", "9"]
        assert collect(file, *flags, "--max-tasks", "4") == 0
        envs = Counter(r.rollout.task.info["env"] for r in read(file))
        assert envs == {"turns": 2, "sums": 2}

    def test_what_no_request_can_pass_is_one_line(self, flags, file, capfd):
        assert collect(file, *flags, "--rollout.name", "refused") == 2
        assert capfd.readouterr().err == "rlgym rollout: the server knows no such model\n"
        assert not file.read_bytes()

    def test_sigkill_costs_what_was_under_way_and_nothing_comes_twice(self, tmp_path, flags, file):
        whole = tmp_path / "whole.jsonl"
        assert collect(whole, *flags) == 0
        flags = [*flags, "--rollout.name", "killed"]
        with run_alone(file, *flags) as process:
            assert process.wait() == -signal.SIGKILL
        # 20 were begun, 8 at most of them in groups that were not saved yet.
        num_left = file.read_bytes().count(b"\n")
        assert 12 <= num_left < 20
        (tmp_path / "mended").touch()
        num_calls = len(self.calls(tmp_path))
        assert collect(file, *flags) == 0
        assert len(self.calls(tmp_path)) - num_calls == 24 - num_left
        assert records(file) == records(whole)

    def test_a_finished_one_samples_nothing(self, tmp_path, flags, file, capsys):
        assert collect(file, *flags) == 0
        before, stored, num_calls = capsys.readouterr(), file.read_bytes(), self.calls(tmp_path)
        assert collect(file, *flags) == 0
        after = capsys.readouterr()
        assert after.out == before.out
        assert "24 of 24 rollouts are there already" in after.err
        assert file.read_bytes() == stored
        assert self.calls(tmp_path) == num_calls

    def test_ctrl_c_ends_after_what_is_under_way(self, tmp_path, flags, file, capfd):
        flags = [*flags, "--rollout.name", "interrupted"]
        assert collect(file, *flags) == 130
        err = capfd.readouterr().err
        assert "ending after what is under way; once more to stop at once" in err
        assert "8 of 24 rollouts are there; the same command goes on" in err
        assert summary(file)["is_complete"] is False
        assert set(Counter(task for task, _ in records(file)).values()) == {4}  # whole groups
        (tmp_path / "mended").touch()
        assert collect(file, *flags) == 0
        assert len(records(file)) == 24

    def test_failed_episodes_are_stored_counted_and_tried_again(
        self, tmp_path, flags, file, capsys
    ):
        flags = [*flags, "--rollout.name", "fails"]
        assert collect(file, *flags) == 1
        failed = {
            key for key, r in records(file).items() if r.rollout.status is not RolloutStatus.OK
        }
        assert failed == {key for key, r in records(file).items() if r.rollout.seed % 3 == 0}
        assert 0 < len(failed) < 24
        assert summary(file)["failed_rollouts"] == {"generator_error": len(failed)}
        assert "the worker died" in records(file)[min(failed)].rollout.error
        (tmp_path / "mended").touch()
        assert collect(file, *flags) == 1
        assert len(self.calls(tmp_path)) == 24
        assert collect(file, *flags, "--retry-errors") == 0
        assert f"{len(failed)} failed rollouts are sampled again" in capsys.readouterr().err
        assert len(self.calls(tmp_path)) == 24 + len(failed)
        assert len(records(file)) == 24
        assert summary(file)["failed_rollouts"] == {}

    def test_a_generator_that_is_down_ends_it(self, tmp_path, flags, file, capsys):
        flags = [*flags, "--rollout.name", "down"]
        assert collect(file, *flags) == 1
        err = capsys.readouterr().err
        assert "not one of the last 8 episodes came to its end" in err
        assert "the engine is down" in err
        assert f"{file} holds the rollouts before, and goes on" in err
        assert len(records(file)) < 24
        (tmp_path / "mended").touch()
        assert collect(file, *flags, "--retry-errors") == 0
        assert {r.rollout.status for r in records(file).values()} == {RolloutStatus.OK}

    def test_a_group_torn_apart_is_compared_whole(self, tmp_path, flags, file):
        flags = [*flags, "--score", "--reward", "share=1"]
        assert collect(file, *flags) == 0
        before, lines = records(file), file.read_bytes().splitlines(keepends=True)
        assert {r.card.reward for r in before.values()} == {0.25}
        file.write_bytes(b"".join(lines[:-3]))
        assert collect(file, *flags) == 0
        assert records(file) == before

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            (["--rollout.temperature", "0.5"], "sampling.temperature: 1.0 -> 0.5"),
            (["--seed", "1"], "seed: 0 -> 1"),
            (["--max-tasks", "5"], "tasks.count: 6 -> 5"),
            (["--env.kwargs.few_shot", "0"], "env.kwargs.few_shot: absent -> 0"),
            (["--score"], "rewards: null -> {"),
        ],
    )
    def test_other_settings_are_refused_by_key(self, flags, file, capsys, other, says):
        assert collect(file, *flags) == 0
        before = file.read_bytes()
        capsys.readouterr()
        assert collect(file, *flags, *other) == 2
        err = capsys.readouterr().err
        assert f"--output {file}: holds rollouts under other settings ({says}" in err
        assert "or name a new file" in err
        assert err.count("\n") == 1
        assert file.read_bytes() == before

    def test_parquet_holds_the_same_once_all_are_there(self, tmp_path, flags, file):
        parquet = file.with_suffix(".parquet")
        interrupted = [*flags, "--rollout.name", "interrupted"]
        assert collect(parquet, *interrupted) == 130
        assert not parquet.exists()
        (tmp_path / "mended").touch()
        assert collect(parquet, *interrupted) == 0
        assert [decode_record(row) for _, row in read_rows(parquet)] == list(read(file))
        written = parquet.stat().st_mtime_ns
        assert collect(parquet, *interrupted) == 0
        assert parquet.stat().st_mtime_ns == written

    def test_one_file_one_writer(self, flags, file, capsys):
        assert collect(file, *flags) == 0
        with (file.parent / ".out.jsonl.lock").open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert collect(file, *flags) == 2
        assert "another rlgym rollout is writing there" in capsys.readouterr().err

    def test_files_of_something_else_are_left_alone(self, tmp_path, flags, file, capsys):
        for mine in (file, file.with_suffix(".parquet"), tmp_path / "rollouts.jsonl"):
            mine.write_text("mine\n")
            assert collect(tmp_path if mine.stem == "rollouts" else mine, *flags) == 2
            err = capsys.readouterr().err
            assert "is there and nothing to go on with" in err
            assert err.count("\n") == 1
            assert mine.read_text() == "mine\n"
            mine.unlink()

    def test_a_line_that_is_no_rollout_is_named(self, flags, file, capsys):
        assert collect(file, *flags) == 0
        lines = file.read_text().splitlines(keepends=True)
        for content, says in (
            ([lines[0], "{}\n", *lines[2:]], "out.jsonl:2: not a stored rollout (KeyError"),
            ([lines[0], "\n", *lines[1:]], "out.jsonl:2: not a stored rollout (JSONDecodeError"),
            ([*lines, lines[0]], "is stored twice"),
        ):
            file.write_text("".join(content))
            capsys.readouterr()
            assert collect(file, *flags) == 2
            err = capsys.readouterr().err
            assert says in err
            assert err.count("\n") == 1
        foreign = json.loads(lines[0])
        foreign["rollout"]["id"] = "another"
        file.write_text(json.dumps(foreign) + "\n")
        assert collect(file, *flags) == 2
        assert "rollout another is none of this command's" in capsys.readouterr().err


def test_a_terminal_sees_a_bar_and_a_pipe_nothing(capfd):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with ProgressBar("rollouts", 8, console) as bar:
        bar.advance(2)
        bar.advance(3, "120 tokens/s, 1 failed")
    assert "5/8 120 tokens/s, 1 failed" in screen.getvalue()
    with open_bar("rollouts", 8) as bar:
        bar.advance(2)
    assert capfd.readouterr() == ("", "")


def settings(*words):
    return read_settings(*rollout_parser().parse_known_args(words))


def test_the_configuration_of_a_training_run_is_taken_as_it_is(tmp_path):
    file = tmp_path / "config.yaml"
    words = ["--actor.optim.lr", "1e-5", "--rollout.n", "6", "--rollout.temperature", "0.7"]
    words += ["--data.val_max_samples", "3", "--reward", "math=1"]
    file.write_text(format_config(parse_command(words).config))
    found = settings("--config", str(file))
    assert [found.group_size, found.config.rollout.temperature, found.max_tasks] == [6, 0.7, None]
    assert settings("--config", str(file), "--n", "2").group_size == 2
    assert settings().group_size == 8


def test_the_starter_model_is_no_model_and_brings_its_settings():
    config = settings("--model", "starter").config
    assert config.model.path is None
    assert config.data.max_response_length == 96


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--n", "0"], "rollout.n"),
        (["--n", "four"], "rollout.n"),
        (["--n", "4", "--rollout.n", "4"], "rollout.n is given twice"),
        (["--max-tasks", "0"], "argument --max-tasks: must be at least 1, got 0"),
        (["--split", "test"], "argument --split: invalid choice: 'test'"),
        (["--reward", "math=1"], "rlgym rollout does not read it; see --score"),
        (["--data.val", "x"], "rlgym rollout does not read it; see --split val"),
        (["--split", "val", "--data.train", "x"], "does not read it; see --split train"),
        (["--rollout.max_staleness", "1"], "--rollout.max_staleness is a key of training"),
        (["actor.optim.lr=1"], "actor.optim.lr is a key of training"),
        (["--data.trian", "x"], "did you mean --data.train?"),
        (["--model", "nowhere/at/all"], "no such folder"),
        (["--env", "math-gsm9k"], "did you mean 'math-gsm8k'"),
        (["--rollout.name", "vlm"], "unknown generator 'vlm'"),
        (["--score", "--reward", "mth"], "did you mean 'math'?"),
    ],
)
def test_mistakes_are_one_line(words, says, capsys, tmp_path):
    assert main([*words, "--output", str(tmp_path / "out.jsonl")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("rlgym rollout: ")
    assert err.count("\n") == 1
    assert says in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("out.jsonl.gz", "name a .jsonl or .parquet file, or a folder"),
        ("out.json", "name a .jsonl or .parquet file, or a folder"),
        ("notes", "is a file; name a folder, or a new .jsonl file"),
        ("notes/out.jsonl", "cannot be made: "),
        ("x" * 300, "cannot be used: "),
    ],
)
def test_outputs_that_cannot_be_are_one_line(tmp_path, capsys, name, says):
    (tmp_path / "notes").write_text("mine")
    assert main(["--output", str(tmp_path / name), *ONE_THREAD, "--max-tasks", "1"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
