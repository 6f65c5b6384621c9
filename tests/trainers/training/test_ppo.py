"""PPO whole: a critic in the loop, its values in the advantages, and a warm-up of its own."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.models.starter import starter_model_path
from rlgym_llm_trainers.training import run_critic
from rlgym_llm_trainers.training.run_critic import cut_off

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import UserError
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.types import Completion, FinishReason, Rollout, Task, Turn

PLUGIN = """
    from rlgym_llm import hookimpl, reward
    from rlgym_llm.multi_turn import MultiTurnEnv
    from rlgym_llm.specs import AdvantageSpec, EnvSpec, GeneratorSpec, RewardSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.types import Message, Task
    from rlgym_llm_trainers.algorithms.advantages.gae import gae
    from rlgym_llm_trainers.generators.hf_generator import HFGenerator

    steps, weights = [], []

    class Chatty(MultiTurnEnv[int]):
        'Answers every turn, whatever is said.'

        def __init__(self, **options):
            prompts = [(Message(role="user", content=f"{i} + 1 = ?"),) for i in range(6)]
            tasks = ListTasks([Task(prompt=prompt, answer="1") for prompt in prompts])
            super().__init__(tasks=tasks, max_turns=3, **options)

        def begin(self, task):
            super().begin(task)

        def respond(self, state, action):
            return "Go on."

    @reward("varied", range=(0, 1))
    def varied(completion):
        return len(completion) % 7 / 7

    def recorded(inputs, *, gamma=1.0, lam=1.0):
        found = gae(inputs, gamma=gamma, lam=lam)
        steps.append((inputs, found))
        return found

    class Watched(HFGenerator):
        # Keeps the policy's weights after every step.

        def sync(self, version):
            weights.append({k: v.clone() for k, v in self._policy.model.state_dict().items()})
            return super().sync(version)

    @hookimpl
    def rlgym_register(kind):
        here = __name__
        made = {
            "reward": RewardSpec(name="varied", entry_point=f"{here}:varied"),
            "env": EnvSpec(name="chatty", entry_point=f"{here}:Chatty"),
            "generator": GeneratorSpec(name="watched", entry_point=f"{here}:Watched.from_config"),
            "advantage": AdvantageSpec(
                name="recorded", entry_point=f"{here}:recorded", needs_critic=True
            ),
        }
        return [made[kind]] if kind in made else []
"""
EXAMPLE = Path(__file__).parents[3] / "examples" / "ppo.yaml"
SMALL = [
    *("--data.train_batch_size", "2", "--rollout.n", "2", "--data.val_max_samples", "2"),
    *("--trainer.val_before_train", "false", "--trainer.num_threads", "1"),
    *("--data.max_response_length", "40", "--reward", "varied", "--critic.optim.lr", "1e-3"),
]


def run(folder, *flags):
    return main(["--output", str(folder), *SMALL, *flags])


def rows_of(folder):
    return [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]


def module_of(plugin):
    (module,) = [m for m in sys.modules.values() if getattr(m, "__file__", None) == plugin]
    return module


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Three steps over several turns, with a KL in the reward, and what the estimator saw."""
    tmp_path = tmp_path_factory.mktemp("recorded")
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(PLUGIN))
    plugin = str(path)
    flags = ["--plugin", plugin, "--env", "chatty", "--algorithm.adv_estimator", "recorded"]
    flags += ["--algorithm.gamma", "0.9", "--algorithm.lam", "0.8", "--algorithm.use_kl_in_reward"]
    flags += ["--algorithm.kl_ctrl.kl_coef", "0.5", "--actor.optim.lr", "1e-3"]
    assert run(tmp_path / "out", *flags, "--trainer.total_training_steps", "3") == 0
    _trial, *steps = module_of(plugin).steps
    return SimpleNamespace(steps=steps, rows=rows_of(tmp_path / "out"), folder=tmp_path / "out")


def test_advantages_go_through_what_the_environment_said(recorded):
    for inputs, found in recorded.steps[1:]:
        num_cut_off = 0
        for row, mask in enumerate(inputs.mask):
            sampled = np.flatnonzero(mask)
            assert len(sampled) < sampled[-1] - sampled[0] + 1  # observations lie between
            # The recursion over the sampled tokens alone, as if nothing lay between them.
            following, advantage = inputs.bootstrap_values[row], 0.0
            num_cut_off += following != 0
            for t in reversed(sampled):
                value = inputs.values[row, t]
                advantage = (
                    inputs.token_rewards[row, t] + 0.9 * following - value + 0.9 * 0.8 * advantage
                )
                assert found.returns[row, t] == pytest.approx(advantage + value, abs=1e-9)
                following = value
            assert np.ptp(inputs.values[row, sampled]) > 0
        assert not found.advantages[~inputs.mask].any()
        assert num_cut_off == len(inputs.mask)  # the budget of turns or tokens ended all of them


def test_the_kl_is_taken_off_each_token(recorded):
    penalties = []
    for inputs, _ in recorded.steps:
        for row, mask in enumerate(inputs.mask):
            *earlier, _ = inputs.token_rewards[row, mask].tolist()
            penalties.append(max(map(abs, earlier)))  # the outcome lies on the last token
            assert inputs.token_rewards[row].sum() == pytest.approx(inputs.rewards[row])
    # The first policy is the reference, up to the rounding of float32.
    assert 0.5e-5 > max(penalties[:4]) < 0.1 * min(penalties[4:])
    assert [row["actor/reward_kl_penalty_coeff"] for row in recorded.rows] == [0.5] * 3


def test_metrics_are_of_the_whole_step_before_the_update(recorded):
    for (inputs, found), row in zip(recorded.steps, recorded.rows, strict=True):
        values, returns = inputs.values[inputs.mask], found.returns[inputs.mask]
        for name, stream in (("values", values), ("returns", returns)):
            for how in ("mean", "max", "min"):
                assert row[f"critic/{name}/{how}"] == pytest.approx(getattr(stream, how)())
        explained = 1 - np.var(returns - values) / np.var(returns)
        assert row["critic/vf_explained_var"] == pytest.approx(explained)
        assert row["critic/lr"] == 0.001
        assert row["critic/grad_norm"] > 0
        assert row["timing_s/values"] > 0
        assert row["timing_s/update_critic"] > 0
    assert recorded.rows[0]["critic/values/mean"] == 0.0  # a new critic
    assert recorded.rows[0]["critic/vf_explained_var"] == 0.0


def test_the_warm_up_leaves_the_policy_as_it_is(plugin_file, tmp_path):
    plugin = plugin_file(PLUGIN)
    flags = ["--plugin", plugin, "--rollout.name", "watched", "--algorithm.adv_estimator", "gae"]
    flags += ["--trainer.critic_warmup", "2", "--trainer.total_training_steps", "3"]
    assert run(tmp_path / "out", *flags) == 0
    before, *after = module_of(plugin).weights
    assert len(after) == 3
    same = [all(torch.equal(before[name], now[name]) for name in before) for now in after]
    assert same == [True, True, False]
    rows = rows_of(tmp_path / "out")[-3:]
    assert ["actor/grad_norm" in row for row in rows] == [False, False, True]
    assert ["critic/grad_norm" in row for row in rows] == [True, True, True]
    assert [row["critic/values/mean"] != 0 for row in rows] == [False, True, True]


def test_the_critic_of_a_run_goes_on_in_another(recorded, tmp_path, plugin_file):
    flags = ["--plugin", plugin_file(PLUGIN), "--algorithm.adv_estimator", "gae"]
    flags += ["--critic.model.path", str(recorded.folder / "critic")]
    assert run(tmp_path / "out", *flags, "--trainer.total_training_steps", "1") == 0
    assert rows_of(tmp_path / "out")[0]["critic/values/mean"] != 0.0


def test_the_critic_can_be_the_starter_of_a_policy_of_ones_own(tmp_path, monkeypatch, plugin_file):
    mine = shutil.copytree(starter_model_path(), tmp_path / "mine")
    bodies = []

    def watched(path, **how):
        bodies.append(Path(path))
        raise UserError("that is enough")

    monkeypatch.setattr(run_critic, "load_value_model", watched)
    flags = ["--plugin", plugin_file(PLUGIN), "--algorithm.adv_estimator", "gae"]
    flags += ["--trainer.total_training_steps", "1", "--model", str(mine)]
    flags += ["--env.kwargs.source", "starter"]
    assert run(tmp_path / "out", *flags) == 2
    assert run(tmp_path / "out", *flags, "--critic.model.path", "starter") == 2
    assert bodies == [mine, starter_model_path()]


def test_a_run_goes_on_with_its_critic_to_the_bit(tmp_path, plugin_file):
    flags = ["--plugin", plugin_file(PLUGIN), "--algorithm.adv_estimator", "gae"]
    flags += ["--trainer.critic_warmup", "1", "--trainer.save_freq", "1"]
    for folder, num_steps in (("whole", "3"), ("halves", "2"), ("halves", "3")):
        assert run(tmp_path / folder, *flags, "--trainer.total_training_steps", num_steps) == 0
    for name in ("model/model", "critic/model", "critic/value_head"):
        whole, halves = (
            (tmp_path / folder / f"{name}.safetensors").read_bytes()
            for folder in ("whole", "halves")
        )
        assert whole == halves, name


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--critic.model.path", "./nowhere"], "--critic.model.path ./nowhere: no such folder"),
        (["--trainer.critic_warmup", "1"], "--trainer.critic_warmup 1: the run has 1 steps"),
        (["--critic.ppo_mini_batch_size", "3"], "--critic.ppo_mini_batch_size 3 does not divide"),
        (["--algorithm.adv_estimator", "grpo"], "--critic.optim.lr 0.001: has no effect on the"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, capsys, plugin_file, flags, says):
    ppo = {"--algorithm.adv_estimator": "gae", "--trainer.total_training_steps": "1"}
    words = [word for pair in (ppo | dict([flags])).items() for word in pair]
    assert run(tmp_path / "out", "--plugin", plugin_file(PLUGIN), *words) == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert stderr.count("\n") == 1


def test_the_dry_run_counts_the_critic(tmp_path, capsys):
    flags = ["--data.train_batch_size", "8", "--critic.ppo_mini_batch_size", "4", "--dry-run"]
    assert main([*flags, "--algorithm.adv_estimator", "gae"]) == 0
    assert (
        "critic       32 sequences on each of 1 rank: 32 = 32 x 1 x 1 accumulation step; "
        "1 x 8 / 4 = 2 optimizer steps a batch"
    ) in capsys.readouterr().out


def test_the_example_is_of_today(capsys):
    assert main(["--config", str(EXAMPLE), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "8 optimizer steps a batch" in said
    assert "3 steps of the critic alone" in said


@pytest.mark.slow
def test_ppo_lifts_the_starter_task(tmp_path):
    flags = ["--config", str(EXAMPLE), "--output", str(tmp_path / "out")]
    assert main([*flags, "--trainer.num_threads", "1"]) == 0
    key = "val-core/rlgym/starter/acc/mean@1"
    measured = [row[key] for row in rows_of(tmp_path / "out") if key in row]
    assert measured[-1] - measured[0] > 0.25


def rollout(name, *, finish=FinishReason.STOP, **ends):
    completion = Completion(text="a", token_ids=(2,), finish_reason=finish)
    turn = Turn(new_prompt_token_ids=(1,), completion=completion)
    task = Task(prompt="?")
    return Rollout(id=name, task=task, group_id="g", sample_index=0, seed=0, turns=(turn,), **ends)


def test_only_a_truncation_that_no_rule_has_judged_is_looked_beyond():
    rollouts = [
        rollout("ended", terminated=True),
        rollout("turns", truncated=True),
        rollout("tokens", finish=FinishReason.LENGTH, terminated=True),
    ]
    config, keep = TrainConfig(), read_rewards({"math": 1.0})
    assert cut_off(rollouts, config, keep) == {"turns", "tokens"}
    for rule in ("zero", "soft", "mask"):
        judged = read_rewards({"components": {"math": {}}, "on_truncated": rule})
        assert cut_off(rollouts, config, judged) == frozenset()
    final = TrainConfig.model_validate({"critic": {"bootstrap_truncated": False}})
    assert cut_off(rollouts, final, keep) == frozenset()


def test_a_run_of_which_every_response_is_cut_and_masked_says_that_it_learned_nothing(
    tmp_path, plugin_file, capsys
):
    flags = ["--plugin", plugin_file(PLUGIN), "--algorithm.adv_estimator", "gae"]
    flags += ["--rewards.on_truncated", "mask"]
    assert run(tmp_path / "out", *flags, "--data.max_response_length", "1") == 1
    assert "nothing was learned: no step had a scored rollout" in capsys.readouterr().err
