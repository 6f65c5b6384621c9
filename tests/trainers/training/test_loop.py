"""The loop in this process: what happens when something dies on the way, and who may join in."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest
import torch
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.models.policy import load_policy

PLUGIN = """
    from dataclasses import replace

    from rlgym_llm import hookimpl, reward
    from rlgym_llm.specs import AdvantageSpec, GeneratorSpec, PolicyLossSpec, RewardSpec
    from rlgym_llm_trainers.algorithms.advantages.groups import grpo
    from rlgym_llm.errors import WeightSyncError
    from rlgym_llm_trainers.generators.hf_generator import HFGenerator
    from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss

    calls = {"scored": 0, "advantages": 0, "losses": 0, "generated": 0}

    @reward("dying", range=(0, 1))
    def dying(completion, *, alive_for: int = 8):
        calls["scored"] += 1
        if calls["scored"] > alive_for:
            raise ConnectionError("the judge is down")
        return len(completion) % 7 / 7

    @reward("exiting", range=(0, 1))
    def exiting(completion, *, alive_for: int = 8):
        calls["scored"] += 1
        if calls["scored"] > alive_for:
            raise SystemExit(0)
        return len(completion) % 7 / 7

    @reward("silent", range=(0, 1))
    def silent(completion):
        return None

    def my_advantages(inputs, *, gamma=1.0, sharpness):
        calls["advantages"] += 1
        calls["options"] = (gamma, sharpness)
        return grpo(inputs, norm_adv_by_std_in_grpo=False)

    def no_advantages(inputs):
        return inputs.sequence_rewards

    def my_loss(inputs, **options):
        calls["losses"] += 1
        return ppo_clip_loss(inputs, **options)

    MINE = f"{__name__}:MyGenerator"

    class MyGenerator(HFGenerator):
        def generate(self, requests):
            calls["generated"] += len(requests)
            return super().generate(requests)

    class Deaf(HFGenerator):
        # Takes no weights after the first update.

        def sync(self, version):
            if version > 1:
                raise WeightSyncError(f"version {version} did not reach the generator")
            return super().sync(version)

    class Liar(HFGenerator):
        def generate(self, requests):
            return [
                replace(done, logprobs=tuple(4 * value for value in done.logprobs))
                for done in super().generate(requests)
            ]

    @hookimpl
    def rlgym_register(kind):
        made = {
            "reward": RewardSpec(name="dying", entry_point=f"{__name__}:dying"),
            "advantage": AdvantageSpec(name="mine", entry_point=f"{__name__}:my_advantages"),
            "policy_loss": PolicyLossSpec(name="mine", entry_point=f"{__name__}:my_loss"),
            "generator": GeneratorSpec(name="mine", entry_point=f"{MINE}.from_config"),
        }
        more = {
            "generator": [
                GeneratorSpec(name="liar", entry_point=f"{__name__}:Liar.from_config"),
                GeneratorSpec(name="deaf", entry_point=f"{__name__}:Deaf.from_config"),
            ],
            "advantage": [AdvantageSpec(name="none", entry_point=f"{__name__}:no_advantages")],
            "reward": [
                RewardSpec(name="exiting", entry_point=f"{__name__}:exiting"),
                RewardSpec(name="silent", entry_point=f"{__name__}:silent"),
            ],
        }
        return [made[kind], *more.get(kind, [])] if kind in made else []
"""

SMALL = [
    *("--data.train_batch_size", "2", "--rollout.n", "4", "--data.val_max_samples", "2"),
    *("--trainer.val_before_train", "false", "--trainer.test_freq", "100"),
    *("--data.max_response_length", "24", "--trainer.num_threads", "1"),
]


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(PLUGIN))
    return str(path)


def run(tmp_path, plugin, *flags):
    return main(["--plugin", plugin, "--output", str(tmp_path / "out"), *SMALL, *flags])


def test_a_judge_that_dies_ends_the_run_and_keeps_what_was_learned(tmp_path, plugin, capsys):
    flags = ["--reward", "dying", "--trainer.total_training_steps", "5"]
    assert run(tmp_path, plugin, *flags) == 1
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert "'dying'" in stderr
    assert "the judge is down" in stderr
    assert "the model after 1 steps is in" in stderr
    load_policy(tmp_path / "out" / "model", device=torch.device("cpu"))
    rows = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1]


def test_a_step_without_any_score_is_an_error_even_if_failures_are_tolerated(
    tmp_path, plugin, capsys
):
    flags = ["--reward", "dying", "--rewards.max_error_rate", "1.0"]
    flags += ["--rewards.components.dying.options.alive_for", "0"]
    assert run(tmp_path, plugin, *flags, "--trainer.total_training_steps", "1") == 1
    assert (
        "step 1: not one of 8 scores worked: reward 'dying' on rollout" in capsys.readouterr().err
    )
    assert not (tmp_path / "out" / "model").exists()


def test_advantages_losses_and_generators_of_others_train_by_name(tmp_path, plugin):
    flags = ["--algorithm.adv_estimator", "mine", "--actor.policy_loss", "mine"]
    flags += ["--algorithm.gamma", "0.5", "--algorithm.adv_kwargs.sharpness", "3"]
    flags += ["--rollout.name", "mine", "--trainer.total_training_steps", "1"]
    assert run(tmp_path, plugin, *flags) == 0
    (module,) = [m for m in sys.modules.values() if getattr(m, "__file__", None) == plugin]
    assert module.calls["advantages"] == 2  # on trial, and in the step
    assert module.calls["options"] == (0.5, 3)
    assert module.calls["losses"] >= 1
    # 2 prompts x 4 samples, and 2 validation problems after the last step.
    assert module.calls["generated"] == 10


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["mine"], "--algorithm.adv_kwargs.sharpness must be given"),
        (["mine", "--algorithm.adv_kwargs.sharpnes", "1"], "did you mean 'sharpness'?"),
        (
            ["mine", "--algorithm.adv_kwargs.sharpness", "1", "--algorithm.lam", "0.5"],
            "--algorithm.lam 0.5: has no effect on the estimator mine",
        ),
    ],
)
def test_options_of_an_estimator_are_checked_first(tmp_path, plugin, capsys, flags, says):
    assert run(tmp_path, plugin, "--algorithm.adv_estimator", *flags) == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["reinforce_plus_plus", "--algorithm.gamma", "0.9"],
        [
            *("grpo", "--rewards.aggregate", "normalize_then_sum", "--reward", "math"),
            *("--reward", "dying", "--rewards.components.dying.options.alive_for", "100"),
        ],
    ],
)
def test_estimators_of_ours_train_by_name(tmp_path, plugin, flags):
    steps = ["--trainer.total_training_steps", "1", "--data.val_max_samples", "1"]
    assert run(tmp_path, plugin, "--algorithm.adv_estimator", *flags, *steps) == 0
    row = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["actor/grad_norm"] > 0


def test_an_adaptive_kl_coefficient_moves_with_the_kl_in_the_reward(tmp_path, plugin):
    flags = ["--algorithm.use_kl_in_reward", "--algorithm.kl_ctrl.type", "adaptive"]
    flags += ["--algorithm.kl_ctrl.kl_coef", "0.1", "--algorithm.kl_ctrl.horizon", "100"]
    assert run(tmp_path, plugin, *flags, "--trainer.total_training_steps", "2") == 0
    rows = [json.loads(r) for r in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    first, second = [r for r in rows if "actor/reward_kl_penalty" in r]
    assert first["actor/reward_kl_penalty"] == pytest.approx(0.0, abs=1e-6)
    assert first["actor/reward_kl_penalty_coeff"] == 0.1
    # The policy is the reference, so its KL lies far below the target: 8 sequences of -.2 / 100.
    assert second["actor/reward_kl_penalty_coeff"] == pytest.approx(0.1 * (1 - 0.2 * 8 / 100))


def test_an_estimator_that_returns_no_advantages_is_named(tmp_path, plugin, capsys):
    assert run(tmp_path, plugin, "--algorithm.adv_estimator", "none") == 2
    assert "advantage estimator 'none' returned a ndarray" in capsys.readouterr().err


@pytest.mark.parametrize(
    "key", ["--algorithm.adv_estimator", "--actor.policy_loss", "--rollout.name"]
)
def test_an_unknown_name_is_one_line(tmp_path, plugin, capsys, key):
    assert run(tmp_path, plugin, key, "mein") == 2
    assert "unknown" in (stderr := capsys.readouterr().err)
    assert stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_generator_that_samples_from_another_policy_ends_the_run(tmp_path, plugin, capsys):
    assert run(tmp_path, plugin, "--rollout.name", "liar") == 1
    stderr = capsys.readouterr().err
    assert "generator and learner disagree" in stderr
    assert not (tmp_path / "out" / "model").exists()
    assert stderr.count("\n") == 1


def test_a_sync_that_fails_ends_the_run_with_all_that_was_learned(tmp_path, plugin, capsys):
    flags = ["--rollout.name", "deaf", "--trainer.total_training_steps", "5"]
    assert run(tmp_path, plugin, *flags) == 1
    stderr = capsys.readouterr().err
    assert "version 2 did not reach the generator" in stderr
    assert "the model after 2 steps is in" in stderr  # the second update had been done
    load_policy(tmp_path / "out" / "model", device=torch.device("cpu"))


def test_a_reward_that_calls_exit_is_a_failure_and_not_a_success(tmp_path, plugin, capsys):
    flags = ["--reward", "exiting", "--trainer.total_training_steps", "5"]
    assert run(tmp_path, plugin, *flags) == 1
    stderr = capsys.readouterr().err
    assert "'exiting'" in stderr
    assert "SystemExit" in stderr
    assert "the model after 1 steps is in" in stderr
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()


def test_a_run_that_learned_nothing_says_so_and_saves_no_model(tmp_path, plugin, capsys):
    assert run(tmp_path, plugin, "--reward", "silent", "--trainer.total_training_steps", "2") == 1
    assert "nothing was learned" in capsys.readouterr().err
    assert not (tmp_path / "out" / "model").exists()
