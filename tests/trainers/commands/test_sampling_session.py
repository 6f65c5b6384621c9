"""`rlgym eval` and `rlgym rollout` refuse alike what cannot be sampled or scored."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from rlgym_llm_trainers.commands import eval_cli, rollout_cli

PLUGIN = """
    from dataclasses import dataclass
    from rlgym_llm import Reward, Score, TextEnv, hookimpl
    from rlgym_llm.scripted_generator import ScriptedGenerator
    from rlgym_llm.specs import EnvSpec, GeneratorSpec, RewardSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.types import Task

    class Script(ScriptedGenerator):
        has_own_weights = False
        sample = None

        def __init__(self, policy, config):
            super().__init__(["5", "6"])

        def sync(self, version):
            return {}

    class NoSplit(TextEnv):
        "Its validation tasks are those it trains on, for it knows no others."
        default_rewards = {"components": {"exact_match": {}}}

        def __init__(self, **options):
            super().__init__(tasks=ListTasks([Task(prompt="2 + 3 =", answer="5")]), **options)

    class Split(NoSplit):
        def __init__(self, *, split="train", **options):
            super().__init__(**options)

    @dataclass(frozen=True, kw_only=True)
    class Share(Reward):
        name = "share"
        scope = "group"

        def score_group(self, group, ctx):
            return [Score(name=self.name, value=1 / len(group.rollouts)) for _ in group.rollouts]

    @hookimpl
    def rlgym_register(kind):
        if kind == "env":
            return [
                EnvSpec(name="nosplit", entry_point=f"{__name__}:NoSplit"),
                EnvSpec(name="split", entry_point=f"{__name__}:Split"),
            ]
        if kind == "generator":
            return [GeneratorSpec(name="script", entry_point=f"{__name__}:Script")]
        if kind == "reward":
            return [RewardSpec(name="share", entry_point=f"{__name__}:Share")]
        return []
"""
COMMANDS = pytest.mark.parametrize("command", ["eval", "rollout"])


@pytest.fixture
def ask(tmp_path, starter):
    """Runs a command on validation tasks, with rewards; the exit code, and where it writes."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(textwrap.dedent(PLUGIN))

    def run(command: str, *flags: str) -> tuple[int, Path]:
        output = tmp_path / "out"
        words = ["--plugin", str(plugin), "--rollout.name", "script", "--model", starter]
        words += ["--trainer.num_threads", "1", "--output", str(output), *flags]
        if command == "eval":
            return eval_cli.main(words), output
        return rollout_cli.main([*words, "--split", "val", "--score"]), output

    return run


@pytest.fixture
def starter() -> str:
    from rlgym_llm_trainers.models.starter import starter_model_path

    return str(starter_model_path())


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        ("eval", "give --data.val, or ask its training tasks by rlgym rollout --score"),
        ("rollout", "give --data.val, or --split train"),
    ],
)
def test_tasks_of_training_are_no_validation_tasks(ask, capsys, command, way_out):
    code, output = ask(command, "--env", "nosplit", "--n", "2")
    err = capsys.readouterr().err
    assert code == 2
    assert f"environment nosplit has no validation tasks of its own; {way_out}" in err
    assert err.count("\n") == 1
    assert not output.exists()


@COMMANDS
def test_an_environment_that_takes_a_split_is_asked(ask, command):
    code, output = ask(command, "--env", "split", "--n", "2")
    assert code == 0
    records = map(json.loads, (output / "rollouts.jsonl").read_text().splitlines())
    assert [record["card"]["reward"] for record in records] == [1.0, 0.0]


@COMMANDS
def test_a_task_that_no_reward_judges_is_named(ask, capsys, tmp_path, command):
    config = tmp_path / "rewards.yaml"
    when = {"data_source": "gsm8k"}
    components = {"exact_match": {"when": when}, "length": {"weight": 0}}
    config.write_text(json.dumps({"rewards": {"components": components}}))
    code, output = ask(command, "--env", "split", "--n", "2", "--config", str(config))
    err = capsys.readouterr().err
    assert code == 2
    assert "no reward judges it: data_source is 'unknown', none of 'gsm8k'" in err
    assert not output.exists()


def test_an_evaluation_goes_by_its_own_weights(ask, tmp_path):
    config = tmp_path / "rewards.yaml"
    other = {"when": {"data_source": "gsm8k"}}
    for exact_match in ({"weight": 0, "eval_weight": 1}, {"weight": 0}):
        components = {"exact_match": exact_match, "length": {"eval_weight": 0, **other}}
        config.write_text(json.dumps({"rewards": {"components": components}}))
        code, output = ask("eval", "--env", "split", "--n", "2", "--config", str(config))
        assert code == 0
        summary = json.loads((output / "summary.json").read_text())
        assert summary["accuracy"]["mean"] == 0.5
        output.rename(tmp_path / f"out-{len(exact_match)}")


@pytest.mark.parametrize(("command", "flag"), [("eval", "--n"), ("rollout", "--rollout.n")])
def test_siblings_are_compared_with_nobody_where_there_is_one(ask, capsys, command, flag):
    words = ["--env", "split", "--reward", "share=1"]
    code, output = ask(command, *words, "--n", "1")
    assert code == 2
    assert f": {flag} 1: a reward of scope group compares" in capsys.readouterr().err
    assert not output.exists()
    assert ask(command, *words, "--n", "2")[0] == 0


def test_an_evaluation_asks_for_siblings_of_its_own_not_of_the_training_run(ask, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"rollout": {"n": 1}}))
    words = ["--config", str(config), "--env", "split", "--reward", "share=1", "--n", "2"]
    assert ask("eval", *words)[0] == 0
