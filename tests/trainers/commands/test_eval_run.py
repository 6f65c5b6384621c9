"""`rlgym eval` as a person runs it: real model, killed and continued; a scripted one by hand."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from rlgym_llm_trainers.commands.eval_cli import main

from rlgym_llm.store import read_rollouts
from rlgym_llm.types import RolloutStatus

PLUGIN = """
    import os, signal
    from dataclasses import dataclass
    from pathlib import Path
    from rlgym_llm import Reward, Score, hookimpl
    from rlgym_llm.errors import GeneratorError
    from rlgym_llm.scripted_generator import ScriptedGenerator
    from rlgym_llm.specs import GeneratorSpec, RewardSpec

    LINES = ["#### 5", "#### 5.0", "so it is #### 7", "none"]
    HERE = Path(__file__).parent

    class Script(ScriptedGenerator):
        has_own_weights = False
        sample = None  # it makes no batches of its own

        def __init__(self, policy, config):
            super().__init__(LINES)

        def sync(self, version):
            return {}

        def generate(self, requests):
            with (HERE / "calls").open("a") as file:
                file.write(f"{len(requests)}\\n")
            return super().generate(requests)

    class Breaks(Script):
        def generate(self, requests):
            if not (HERE / "mended").exists():
                raise GeneratorError("the engine is down")
            return super().generate(requests)

    class Interrupts(Script):
        def generate(self, requests):
            if not (HERE / "calls").exists():
                os.kill(os.getpid(), signal.SIGINT)
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

    @dataclass(frozen=True, kw_only=True)
    class Fails(Reward):
        name = "fails"

        def score(self, rollout, ctx):
            if rollout.sample_index == 3 and not (HERE / "mended").exists():
                raise OSError("the judge is down")
            return Score(name=self.name, value=1.0)

    @hookimpl
    def rlgym_register(kind):
        if kind == "reward":
            return [
                RewardSpec(name=c.name, entry_point=f"{__name__}:{c.__name__}")
                for c in (Share, Fails)
            ]
        if kind != "generator":
            return []
        return [
            GeneratorSpec(name=c.__name__.lower(), entry_point=f"{__name__}:{c.__name__}")
            for c in (Script, Breaks, Interrupts)
        ]
"""
ONE_THREAD = ["--trainer.num_threads", "1"]


def evaluate(output: Path, *flags: str) -> int:
    return main(["--output", str(output), *ONE_THREAD, *flags])


def records(output: Path):
    stored = read_rollouts(output / "rollouts.jsonl")
    assert stored.torn_line is None
    return list(stored.records)


def summary(output: Path) -> dict:
    found = json.loads((output / "summary.json").read_text())
    del found["timing"]
    return found


class TestKilled:
    """With the starter model on starter problems: killed at any time, the end is the same."""

    GREEDY = ("--max-tasks", "24", "--rollout.max_num_seqs", "2")
    SAMPLED = ("--max-tasks", "24", "--n", "3", "--rollout.max_num_seqs", "3", "--seed", "5")

    @pytest.mark.parametrize("flags", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
    def test_sigkill_then_the_same_command_gives_what_one_run_gives(self, tmp_path, flags):
        whole, killed = tmp_path / "whole", tmp_path / "killed"
        assert evaluate(whole, *flags) == 0
        words = [
            sys.executable,
            "-m",
            "rlgym_llm_trainers.commands.eval_cli",
            "--output",
            str(killed),
        ]
        with subprocess.Popen(
            [*words, *ONE_THREAD, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            file = killed / "rollouts.jsonl"
            while process.poll() is None and (not file.exists() or file.stat().st_size < 10_000):
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        num_left = file.read_bytes().count(b"\n")
        assert process.returncode == -signal.SIGKILL
        assert 0 < num_left < len(records(whole))
        with file.open("r+b") as stored:  # and torn in the middle of a line
            stored.truncate(stored.seek(0, os.SEEK_END) - 100)
        assert evaluate(killed, *flags) == 0
        assert records(killed) == records(whole)
        assert summary(killed) == summary(whole)

    def test_a_batch_size_of_its_own_may_change_and_siblings_stay_the_same(self, tmp_path):
        output = tmp_path / "out"
        flags = ["--max-tasks", "3", "--n", "2"]
        assert evaluate(output, *flags, "--rollout.max_num_seqs", "2") == 0
        before = records(output)
        file = output / "rollouts.jsonl"
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))
        assert evaluate(output, *flags, "--rollout.max_num_seqs", "64") == 0
        assert [r.rollout.text for r in records(output)] == [r.rollout.text for r in before]
        assert [r.rollout.seed for r in records(output)] == [r.rollout.seed for r in before]


class TestScripted:
    """Every task's four responses are right, right, wrong and none."""

    @pytest.fixture
    def flags(self, tmp_path) -> list[str]:
        plugin, data = tmp_path / "mine.py", tmp_path / "rows.jsonl"
        plugin.write_text(textwrap.dedent(PLUGIN))
        rows = [{"question": f"{i} + {5 - i} = ?", "answer": "#### 5"} for i in range(6)]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        flags = ["--plugin", str(plugin), "--data.val", str(data), "--n", "4", "--k", "1,2,4"]
        return [*flags, "--rollout.name", "script", "--rollout.max_num_seqs", "8"]

    @staticmethod
    def calls(tmp_path) -> list[int]:
        file = tmp_path / "calls"
        return list(map(int, file.read_text().split())) if file.exists() else []

    def test_figures_by_hand(self, tmp_path, flags, capsys):
        output = tmp_path / "out"
        assert evaluate(output, *flags, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found == json.loads((output / "summary.json").read_text())
        assert found["accuracy"]["mean"] == 0.5
        assert found["accuracy"]["count"] == 24
        # 1 - C(2,2)/C(4,2); two right ones outvote the 7
        assert found["pass@k"]["2"]["mean"] == pytest.approx(1 - 1 / 6)
        assert [found["pass@k"]["4"]["mean"], found["maj@k"]["4"]["mean"]] == [1.0, 1.0]
        assert self.calls(tmp_path) == [8, 8, 8]
        stored = records(output)
        assert len({(r.rollout.task.id, r.rollout.sample_index) for r in stored}) == 24
        assert all(record.card.rollout_id == record.rollout.id for record in stored)
        assert not list(output.glob("*.partial"))

    def test_a_finished_one_samples_nothing(self, tmp_path, flags, capsys):
        output = tmp_path / "out"
        assert evaluate(output, *flags) == 0
        before, file = capsys.readouterr(), output / "rollouts.jsonl"
        bytes_before, sampled = file.read_bytes(), len(self.calls(tmp_path))
        assert evaluate(output, *flags) == 0
        after = capsys.readouterr()
        assert after.out == before.out
        assert "24 of 24 rollouts are there already" in after.err
        assert file.read_bytes() == bytes_before
        assert len(self.calls(tmp_path)) == sampled

    def test_other_k_need_no_new_samples(self, tmp_path, flags):
        output = tmp_path / "out"
        assert evaluate(output, *flags) == 0
        assert evaluate(output, *flags, "--k", "3") == 0
        assert list(summary(output)["pass@k"]) == ["3"]
        assert len(self.calls(tmp_path)) == 3

    def test_a_group_torn_apart_is_compared_whole(self, tmp_path, flags):
        flags = [*flags, "--reward", "share=1"]
        whole, torn = tmp_path / "whole", tmp_path / "torn"
        for output in (whole, torn):
            assert evaluate(output, *flags) == 0
        file = torn / "rollouts.jsonl"
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:10]))
        assert evaluate(torn, *flags) == 0
        assert [r.card for r in records(torn)] == [r.card for r in records(whole)]
        assert {len(r.card.components) for r in records(torn)} == {1}
        assert records(torn)[2].card.reward == 15 / (6 + 8 + 15 + 4)

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            (["--temperature", "0.5"], "sampling.temperature: 1.0 -> 0.5"),
            (["--seed", "1"], "seed: 0 -> 1"),
            (["--rollout.stop", '["####"]'], "sampling.stop: absent -> "),
            (["--rollout.stop_token_ids", "[7]"], "sampling.stop_token_ids: absent -> "),
            (["--max-tasks", "5"], "tasks.count: 6 -> 5"),
            (["--env.kwargs.few_shot", "0"], "env.kwargs.few_shot: absent -> 0"),
            (["--reward", "math=0.5"], "rewards.components.format: {"),
        ],
    )
    def test_other_settings_are_refused_by_key(self, tmp_path, flags, capsys, other, says):
        output = tmp_path / "out"
        assert evaluate(output, *flags) == 0
        before = (output / "rollouts.jsonl").read_bytes()
        capsys.readouterr()
        assert evaluate(output, *flags, *other) == 2
        assert says in capsys.readouterr().err
        assert (output / "rollouts.jsonl").read_bytes() == before

    def test_other_weights_in_the_same_place_are_refused(self, tmp_path, flags, capsys, policy):
        from rlgym_llm_trainers.models.policy import load_policy, save_policy
        from rlgym_llm_trainers.models.starter import starter_model_path

        model, output = tmp_path / "model", tmp_path / "out"
        trained = load_policy(starter_model_path(), device=policy.device)
        save_policy(trained, model)
        assert evaluate(output, *flags, "--model", str(model)) == 0
        next(trained.model.parameters()).data[0, 0] += 1e-3
        save_policy(trained, model)
        assert evaluate(output, *flags, "--model", str(model)) == 2
        assert "model.weights: " in capsys.readouterr().err

    def test_ctrl_c_ends_after_the_batch_and_the_rest_follows(self, tmp_path, flags, capfd):
        output = tmp_path / "out"
        flags = [*flags, "--rollout.name", "interrupts"]
        assert evaluate(output, *flags) == 130
        assert "8 of 24 rollouts are there; the same command" in capfd.readouterr().err
        assert len(records(output)) == 8
        assert summary(output)["is_complete"] is False
        assert evaluate(output, *flags) == 0
        assert len(records(output)) == 24
        assert summary(output)["is_complete"] is True

    def test_failed_rewards_are_counted_and_tried_again_on_demand(self, tmp_path, flags, capsys):
        output = tmp_path / "out"
        flags = [*flags, "--reward", "math", "--reward", "fails", "--rewards.max_error_rate", "1"]
        assert evaluate(output, *flags) == 1
        assert summary(output)["failed_scores"] == {"fails": 6}
        assert summary(output)["reward"]["count"] == 18
        (tmp_path / "mended").touch()
        assert evaluate(output, *flags) == 1
        assert evaluate(output, *flags, "--retry-errors") == 0
        assert "6 failed rollouts are sampled again" in capsys.readouterr().err
        assert summary(output)["failed_scores"] == {}
        ids = [(r.rollout.task.id, r.rollout.sample_index) for r in records(output)]
        assert len(ids) == len(set(ids)) == 24

    def test_a_generator_that_is_down_ends_it_and_nothing_is_lost(self, tmp_path, flags, capsys):
        output = tmp_path / "out"
        flags = [*flags, "--rollout.name", "breaks"]
        assert evaluate(output, *flags) == 1
        stderr = capsys.readouterr().err
        assert "not one of 8 episodes of a batch came to its end" in stderr
        assert "the engine is down" in stderr
        assert {r.rollout.status for r in records(output)} == {RolloutStatus.GENERATOR_ERROR}
        (tmp_path / "mended").touch()
        assert evaluate(output, *flags, "--retry-errors") == 0
        assert {r.rollout.status for r in records(output)} == {RolloutStatus.OK}

    def test_rewards_that_keep_failing_end_it_and_what_was_saved_stays(
        self, tmp_path, flags, capsys
    ):
        output = tmp_path / "out"
        flags = [*flags, "--reward", "fails", "--rewards.max_error_rate", "0.1"]
        assert evaluate(output, *flags) == 1
        stderr = capsys.readouterr().err
        assert "more than max_error_rate 0.1 allows" in stderr
        assert f"{output} holds the rollouts before" in stderr
        assert len(records(output)) == 8
        (tmp_path / "mended").touch()
        assert evaluate(output, *flags, "--retry-errors") == 0
        assert len(records(output)) == 24

    def test_one_folder_one_writer(self, tmp_path, flags, capsys):
        output = tmp_path / "out"
        assert evaluate(output, *flags) == 0
        with (output / ".lock").open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert evaluate(output, *flags) == 2
        assert "another rlgym eval is writing there" in capsys.readouterr().err

    def test_a_folder_of_something_else_is_left_alone(self, tmp_path, flags, capsys):
        assert evaluate(tmp_path, *flags) == 2
        assert "the folder is in use" in capsys.readouterr().err
        assert not (tmp_path / "eval.json").exists()

    def test_a_line_that_is_no_rollout_is_named(self, tmp_path, flags, capsys):
        output = tmp_path / "out"
        assert evaluate(output, *flags) == 0
        file = output / "rollouts.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([lines[0], "{}\n", *lines[2:]]))
        assert evaluate(output, *flags) == 2
        assert "rollouts.jsonl:2: not a stored rollout" in capsys.readouterr().err
        file.write_text("".join([*lines, lines[0]]))
        assert evaluate(output, *flags) == 2
        assert "is stored twice" in capsys.readouterr().err
