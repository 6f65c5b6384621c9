"""A mixture trains, is validated per member, and its curriculum sees the successes."""

from __future__ import annotations

import json

import pytest
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.training.environments import has_validation_tasks, make_env
from rlgym_llm_trainers.training.preparation import fitting_tasks, validation_tasks
from rlgym_llm_trainers.training.run_rewards import Accuracy, accuracy_of
from rlgym_llm_trainers.training.task_order import EpochOrder, choose_sampler
from rlgym_llm_trainers.training.validate import validation_metrics

from rlgym_llm.curriculum import ShareSampler
from rlgym_llm.errors import ConfigError
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.types import Rollout, Task

PLUGIN = """
    from rlgym_llm import TextEnv, hookimpl
    from rlgym_llm.specs import EnvSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.types import Message, Task

    class Flat(TextEnv):
        def __init__(self, **options):
            prompt = (Message(role="user", content="?"),)
            super().__init__(tasks=ListTasks([Task(prompt=prompt)] * 4), **options)

    @hookimpl
    def rlgym_register(kind):
        if kind != "env":
            return []
        return [
            EnvSpec(name="flat", entry_point=f"{__name__}:Flat"),
            EnvSpec(name="mix", entry_point="rlgym_llm.mixture:Mixture"),
            EnvSpec(name="sums", entry_point="rlgym_llm_envs.arithmetic:ArithmeticEnv"),
            EnvSpec(name="guess", entry_point="rlgym_llm_envs.guess_number:GuessNumberEnv"),
            EnvSpec(name="calc", entry_point="rlgym_llm_envs.gsm8k_calculator:Gsm8kCalculatorEnv"),
        ]
"""
MIX = ("--env", "mix", "--env.kwargs.envs.guess", "1", "--env.kwargs.envs.sums", "2")


@pytest.fixture
def plugin(plugin_file):
    return plugin_file(PLUGIN)


def test_a_mixture_trains_by_its_shares_and_reports_each_member(tmp_path, plugin):
    out, dump = tmp_path / "out", tmp_path / "rollouts"
    code = main(
        [
            *("--plugin", plugin, *MIX, "--env.kwargs.envs.calc", "1", "--output", str(out)),
            *("--data.train_batch_size", "8", "--rollout.n", "2", "--trainer.num_threads", "1"),
            *("--data.max_response_length", "24", "--trainer.total_training_steps", "2"),
            *("--data.val_max_samples", "6", "--data.curriculum.type", "success"),
            *("--trainer.rollout_data_dir", str(dump), "--trainer.log_val_generations", "3"),
        ]
    )
    assert code == 0
    lines = [json.loads(line) for line in (dump / "1.jsonl").read_text().splitlines()]
    envs = [line["rollout"]["task"]["info"]["env"] for line in lines]
    assert {alias: envs.count(alias) for alias in ("guess", "sums", "calc")} == {
        "guess": 4,
        "sums": 8,
        "calc": 4,
    }
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"val-core/guess/reward/mean@1", "val-core/sums/acc/mean@1"} <= last.keys()
    assert {"val-core/calc/acc/mean@1", "val-aux/calc/format/mean@1"} <= last.keys()
    assert last["response/aborted_ratio"] == 0
    assert last["curriculum/success/guess"] is not None
    shares = [v for key, v in last.items() if key.startswith("curriculum/share/")]
    assert sum(shares) == pytest.approx(1.0)


def test_the_same_seed_draws_the_same_tasks(plugin, run_settings):
    config, plugins = run_settings(plugin, *MIX)
    env = make_env(config, plugins, role="train")
    tasks = [env.tasks[index] for index in range(0, len(env.tasks), 40)]
    draws = [
        [choose_sampler(config.data, env, tasks, seed=seed).draw(s, 9) for s in (1, 2, 3)]
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1] != draws[2]
    assert [sum(tasks[i].info["env"] == "guess" for i in drawn) for drawn in draws[0]] == [3, 3, 3]


def test_validation_looks_at_every_member(plugin, run_settings):
    config, plugins = run_settings(plugin, *MIX, "--data.val_max_samples", "5")
    env = make_env(config, plugins, role="val")
    kept = validation_tasks(config, env, ScriptedGenerator(["x"]), [].append)
    assert [task.info["env"] for task in kept] == ["guess", "sums", "guess", "sums", "guess"]


def test_a_mixture_of_training_tasks_alone_is_not_validated(plugin, run_settings):
    config, plugins = run_settings(plugin, "--env", "mix", "--env.kwargs.envs.flat", "1")
    assert not has_validation_tasks(config, plugins)
    config, plugins = run_settings(plugin, *MIX, "--env.kwargs.envs.flat", "1")
    assert has_validation_tasks(config, plugins)
    assert "flat" not in make_env(config, plugins, role="val").members


def test_members_take_starter_problems_where_no_model_is_named(plugin, run_settings):
    config, plugins = run_settings(plugin, "--env", "mix", "--env.kwargs.envs.math-gsm8k", "1")
    task = make_env(config, plugins, role="train").tasks[0]
    assert (task.data_source, task.info["env"]) == ("rlgym/starter", "math-gsm8k")


def test_prompts_of_members_are_measured_as_they_open(plugin, run_settings):
    flags = ("--env.kwargs.envs.calc", "1", "--data.max_prompt_length", "300")
    config, plugins = run_settings(plugin, *MIX, *flags)
    env = make_env(config, plugins, role="train")
    first = {alias: env.tasks[env.tasks.span(alias).start] for alias in env.members}
    generator, notes = ScriptedGenerator(["x"]), []
    kept = fitting_tasks(config, list(first.values()), generator, notes.append, env=env)
    # One token a character: it is the words about the calculator that make its prompt too long.
    assert len(generator.encode_prompt(first["calc"].prompt)) <= 300
    assert [task.info["env"] for task in kept] == ["guess", "sums"]


def test_a_curriculum_needs_kinds_and_a_mixture_draws_by_shares(plugin, run_settings):
    on = ("--data.curriculum.type", "success")
    config, plugins = run_settings(plugin, "--env", "flat", *on)
    env = make_env(config, plugins, role="train")
    with pytest.raises(ConfigError, match="tasks are all of one kind"):
        choose_sampler(config.data, env, [env.tasks[0]], seed=0)
    config, plugins = run_settings(plugin, "--env", "sums", *on)
    env = make_env(config, plugins, role="train")
    tasks = [env.tasks[index] for index in range(10)]
    levels = choose_sampler(config.data, env, tasks, seed=0)
    assert isinstance(levels, ShareSampler)
    assert list(levels.shares) == [f"level {level}" for level in range(1, 6)]
    config, _ = run_settings(plugin, "--env", "sums")
    assert isinstance(choose_sampler(config.data, env, tasks, seed=0), EpochOrder)
    config, _ = run_settings(plugin, *MIX, "--data.shuffle", "false")
    mixture = make_env(config, plugins, role="train")
    with pytest.raises(ConfigError, match=r"--data\.shuffle false"):
        choose_sampler(config.data, mixture, [mixture.tasks[0]], seed=0)


def test_a_mixture_may_bring_its_curriculum_and_a_run_may_turn_it_off(plugin, run_settings):
    mine = (*MIX, "--env.kwargs.curriculum.target", "0.7")
    config, plugins = run_settings(plugin, *mine)
    env = make_env(config, plugins, role="train")
    assert env.curriculum.target == 0.7
    tasks = [env.tasks[0], env.tasks[len(env.tasks) - 1]]
    assert choose_sampler(config.data, env, tasks, seed=0).metrics()
    config, _ = run_settings(plugin, *mine, "--data.curriculum.type", "none")
    assert not choose_sampler(config.data, env, tasks, seed=0).metrics()


def test_a_curriculum_setting_without_effect_is_refused(plugin, run_settings):
    with pytest.raises(ConfigError, match="target has no effect without type success"):
        run_settings(plugin, "--data.curriculum.target", "0.4")


def test_the_accuracy_of_a_mixture_is_that_of_each_member(plugin, run_settings):
    config, plugins = run_settings(plugin, *MIX)
    env = make_env(config, plugins, role="train")
    accuracy = accuracy_of(env, env.rewards, plugins)
    assert accuracy == Accuracy(by_env={"guess": None, "sums": "sums/math"})
    own = accuracy_of(env, read_rewards({"exact_match": 1.0}), plugins)
    assert own == Accuracy(name="exact_match")


def test_metrics_of_members_with_one_data_source_stay_apart():
    def pair(alias, name, raw):
        task = Task(prompt="?", data_source="same", info={"env": alias})
        rollout = Rollout(
            id=alias, task=task, group_id=alias, sample_index=0, seed=0, turns=(), terminated=True
        )
        component = Component(
            raw=raw, weight=1.0, transformed=raw, contribution=raw, status=ScoreStatus.OK
        )
        card = ScoreCard(
            rollout_id=alias, reward=raw, components={name: component}, status=CardStatus.SCORED
        )
        return rollout, card

    rollouts, cards = zip(pair("a", "a/math", 1.0), pair("b", "b/env", 0.25), strict=True)
    accuracy = Accuracy(by_env={"a": "a/math", "b": None})
    found = validation_metrics(rollouts, cards, num_samples=1, accuracy=accuracy)
    assert found["val-core/a/acc/mean@1"] == 1.0
    assert found["val-core/b/reward/mean@1"] == 0.25
    assert found["val-aux/b/env/mean@1"] == 0.25
    assert not any("/same/" in key for key in found)
