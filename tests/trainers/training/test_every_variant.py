"""Every registered estimator and loss, and what the loop does for some, trains the starter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.kl_controller import make_kl_controller
from rlgym_llm_trainers.commands.command_words import over_starter_run
from rlgym_llm_trainers.training.collecting import open_collector
from rlgym_llm_trainers.training.console import PlainView
from rlgym_llm_trainers.training.interrupt import Interrupt
from rlgym_llm_trainers.training.run_folder import RunFolder
from rlgym_llm_trainers.training.session import Session, open_session
from rlgym_llm_trainers.training.step import train_step

from rlgym_llm.config import parse_command
from rlgym_llm.rollout import run_groups
from rlgym_llm.specs import Kind

Metrics = dict[str, float | None]

SMALL = [
    *("--data.train_batch_size", "4", "--rollout.n", "4", "--data.max_response_length", "24"),
    *("--actor.ppo_mini_batch_size", "2", "--actor.optim.lr", "1e-4"),
    *("--trainer.total_training_steps", "2", "--trainer.num_threads", "1"),
    *("--trainer.val_before_train", "false", "--data.val_max_samples", "1"),
]
ESTIMATORS = [spec.name for spec in rlgym_register(Kind.ADVANTAGE)]
LOSSES = [spec.name for spec in rlgym_register(Kind.POLICY_LOSS)]


@contextmanager
def opened(tmp_path, *flags: str) -> Iterator[tuple[Session, Callable[[int], Metrics]]]:
    """A session, and what makes its steps, without what comes before and after them in a run."""
    command, plugins = over_starter_run(parse_command([*SMALL, *flags]))
    config = command.config
    run = RunFolder(path=tmp_path / "out")
    with PlainView(shows_steps=False) as view:
        session = open_session(config, plugins=plugins, run=run, view=view)
        control = make_kl_controller(config.algorithm.kl_ctrl)
        with closing(session), closing(open_collector(session, Interrupt())) as collector:
            yield session, lambda step: train_step(session, collector, step, control)[0]


def train(tmp_path, *flags: str) -> list[Metrics]:
    """The metrics of two steps."""
    with opened(tmp_path, *flags) as (_, make_step):
        return [make_step(1), make_step(2)]


def assert_trained(rows: list[Metrics]) -> None:
    assert len(rows) == 2
    assert all(row["actor/skipped_ratio"] == 0 for row in rows)
    assert max(row["actor/grad_norm"] for row in rows) > 0
    # The second mini-batch of a step is learned by a policy that the first has moved.
    assert rows[0]["actor/ppo_kl"] != 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_trains(tmp_path, name):
    assert_trained(train(tmp_path, "--algorithm.adv_estimator", name))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains(tmp_path, name):
    assert_trained(train(tmp_path, "--actor.policy_loss", name))


def test_the_greedy_sibling_is_a_baseline_and_never_trains(tmp_path):
    folder = tmp_path / "rollouts"
    flags = ["--algorithm.adv_estimator", "remax", "--trainer.rollout_data_dir", str(folder)]
    with opened(tmp_path, *flags) as (session, make_step):
        greedy = run_groups(  # of the policy as it is before the step; the seed does not matter
            [session.train_tasks[index] for index in session.sampler.draw(1, 4)],
            group_size=1,
            seed=99,
            make_env=session.train_envs,
            generator=session.generator,
            params=replace(session.train_params, temperature=0.0),
            **session.limits,
        )
        cards = session.train_composer([group.rollouts[0] for group in greedy], step=1)
        row = make_step(1)
    wanted = [card.reward for card in cards]
    assert row["critic/baselines/mean"] == pytest.approx(sum(wanted) / 4)
    stored = [json.loads(line) for line in (folder / "1.jsonl").read_text().splitlines()]
    assert [record["rollout"]["sample_index"] for record in stored] == [0, 1, 2, 3] * 4
    # Four siblings share a baseline, and every token of a response is worth what that earned more.
    found = [record["card"]["reward"] - wanted[place // 4] for place, record in enumerate(stored)]
    assert row["critic/advantages/max"] == pytest.approx(max(found))
    assert row["critic/advantages/min"] == pytest.approx(min(found))


def test_dynamic_sampling_leaves_no_group_without_signal(tmp_path):
    rows = train(tmp_path, "--algorithm.filter_groups.enable", "true")
    assert_trained(rows)
    for row in rows:
        assert row["frac_reward_zero_std"] == 0
        assert row["training/filter_groups/num_gen_batches"] >= 1


def test_policy_filtration_trains_what_was_drawn(tmp_path):
    flags = ["--algorithm.adv_estimator", "reinforce_plus_plus", "--algorithm.use_pf_ppo", "true"]
    rows = train(tmp_path, *flags, "--algorithm.pf_ppo.reweight_method", "max_random")
    assert_trained(rows)
    assert all(0 < row["training/pf_ppo/drawn_ratio"] < 1 for row in rows)


def test_batches_by_tokens_train_the_same(tmp_path):
    plain = train(tmp_path / "plain", "--data.max_prompt_length", "64")
    flags = ["--data.max_prompt_length", "64", "--actor.use_dynamic_bsz", "true"]
    found = train(tmp_path / "by_tokens", *flags, "--actor.ppo_max_token_len_per_gpu", "88")
    for mine, wanted in zip(found, plain, strict=True):
        assert mine["actor/grad_norm"] == pytest.approx(wanted["actor/grad_norm"], rel=1e-3)
        assert mine["critic/score/mean"] == wanted["critic/score/mean"]
