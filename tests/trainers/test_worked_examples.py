"""Eleven small sums that a reader can do on paper, done by the functions that train."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gae import lambda_advantages
from rlgym_llm_trainers.algorithms.advantages.groups import grpo
from rlgym_llm_trainers.algorithms.aggregate import aggregate, count_tokens
from rlgym_llm_trainers.algorithms.kl import kl_penalty
from rlgym_llm_trainers.algorithms.losses import PolicyLossInputs, ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.value import ExplainedVariance, value_loss
from rlgym_llm_trainers.learner.reward_kl import penalized
from rlgym_llm_trainers.training.buffer import GroupBuffer, Offer
from rlgym_llm_trainers.training.staleness import staleness_metrics

from rlgym_llm.batch_arithmetic import describe, plan_batches
from rlgym_llm.composition.card import compose
from rlgym_llm.config import load_config
from rlgym_llm.layouts.table import TABLE_TYPES
from rlgym_llm.scores import Score
from rlgym_llm.types import Completion, Rollout, RolloutGroup, Task, Turn


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def mean_of(mask):
    tokens, sequences = count_tokens(mask)
    return functools.partial(aggregate, num_tokens=tokens, num_sequences=sequences)


def group_advantages(rewards):
    inputs = AdvantageInputs(
        token_rewards=np.array(rewards, dtype=np.float64)[:, None],
        mask=np.ones((len(rewards), 1), dtype=bool),
        group_ids=("g",) * len(rewards),
        is_scored=np.ones(len(rewards), dtype=bool),
    )
    found = grpo(inputs)
    return found.advantages[:, 0], found.metrics["group_reward_std"].result()


def test_1_group_advantages():
    assert group_advantages([0.7, 0.7, 0.7, 0.7])[0].tolist() == [0, 0, 0, 0]
    base = [0.0, 0.25, 1.0, 0.5]
    plain = group_advantages(base)[0]
    for same in ([10 + r for r in base], [10 * r for r in base]):
        assert group_advantages(same)[0] == pytest.approx(plain, abs=1e-5)  # up to eps
    noise, small = group_advantages([0.61, 0.60, 0.62, 0.61])
    signal, large = group_advantages([0.95, 0.10, 0.78, -0.20])
    assert max(abs(noise)) == pytest.approx(1.2247, abs=2e-4)
    assert max(abs(signal)) < 1.3
    assert (small, large) == (pytest.approx(0.00816, abs=1e-5), pytest.approx(0.5468, abs=1e-4))
    halves, _ = group_advantages([0, 100, 0, 100])
    assert halves == pytest.approx([-0.8660254, 0.8660254] * 2, abs=1e-6)


def test_2_clipping():
    mask = torch.tensor([[True]])

    def loss(advantage, log_ratio, **options):
        inputs = PolicyLossInputs(
            logprobs=float64([[log_ratio]]),
            old_logprobs=float64([[0.0]]),
            advantages=float64([[advantage]]),
            mask=mask,
        )
        return ppo_clip_loss(inputs, reduce=mean_of(mask), **options).loss.item()

    assert loss(2.0, math.log(1.6)) == pytest.approx(-2.4)  # the smaller of 3.2 and 1.2 x 2
    assert loss(-2.0, math.log(0.5)) == pytest.approx(1.6)  # the lower bound: .8 x 2
    assert math.exp(8) == pytest.approx(2981, abs=1)
    assert loss(1.0, 8.0) == pytest.approx(-1.2)
    assert loss(-1.0, 8.0, clip_c=None) == pytest.approx(2981, abs=1)


def test_3_shapes_and_masks():
    ids = torch.zeros((8, 512), dtype=torch.int64)
    mask = torch.zeros((8, 512), dtype=torch.bool)
    mask[:, 384:] = True  # the response: [8, 128]
    mask[3, 500:] = False  # padding
    advantages = torch.linspace(-1, 1, 8)[:, None].expand(8, 512).double()
    logprobs = torch.zeros(ids.shape, dtype=torch.float64, requires_grad=True)
    inputs = PolicyLossInputs(
        logprobs=logprobs, old_logprobs=None, advantages=advantages, mask=mask
    )
    loss = ppo_clip_loss(inputs, reduce=mean_of(mask)).loss
    loss.backward()
    expected = -(advantages * mask).sum() / mask.sum()
    assert loss.item() == pytest.approx(expected.item())
    assert bool((logprobs.grad[~mask] == 0).all())
    assert logprobs.grad[0, 400].item() == pytest.approx(1 / int(mask.sum()))


def test_4_reward_assembly():
    lengths, kl_coef = (100, 50, 20), 0.5
    rewards = []
    for env, form, length in zip((8.0, 0.0, 8.0), (1.5, 1.5, 0.0), lengths, strict=True):
        values = {"env": env, "format": form, "length": float(length)}
        scores = {name: Score(name=name, value=value) for name, value in values.items()}
        card = compose("r", scores, {"env": 1.0, "format": 1.0, "length": -0.01})
        rewards.append(card.reward)
    assert rewards == pytest.approx([8.5, 1.0, 7.8])
    placed = np.zeros((3, 4))
    placed[:, 3] = rewards
    kl = np.array([[9.0, 0.1, 0.2, 0.3]] * 3)  # the first token is the prompt's
    mask = np.array([[False, True, True, True]] * 3)
    found = penalized(placed, kl, mask, kl_coef=kl_coef)
    assert found.sum(-1) == pytest.approx([r - kl_coef * 0.6 for r in rewards])
    assert found[0] == pytest.approx([0, -0.05, -0.1, 8.5 - 0.15])


def test_5_kl_estimators():
    policy, reference = float64([-1.2, -0.3]), float64([-0.7, -0.9])
    assert kl_penalty(policy, reference, "k1").tolist() == pytest.approx([-0.5, 0.6])
    assert kl_penalty(policy, reference, "k2").tolist() == pytest.approx([0.125, 0.18])
    k3 = [math.exp(0.5) - 0.5 - 1, math.exp(-0.6) + 0.6 - 1]
    assert kl_penalty(policy, reference, "k3").tolist() == pytest.approx(k3)
    assert min(k3) >= 0


def test_6_batch_arithmetic():
    words = ["--data.train_batch_size", "256", "--actor.ppo_mini_batch_size", "128"]
    words += ["--rollout.n", "1", "--actor.ppo_micro_batch_size_per_gpu", "16"]
    plan = plan_batches(load_config(words), dp_size=8)
    assert (plan.updates_per_step, plan.accumulation_steps) == (2, 1)
    critic = plan_batches(load_config([*words[:-1], "4"]), dp_size=8)
    assert (4 * 8, critic.accumulation_steps) == (32, 4)
    assert "2" in describe(plan)


def test_7_gae_of_a_small_sum():
    rewards = np.array([[0.0, 1.0]])  # "5", then end-of-text after "2 + 3 = "
    values = np.array([[0.5, 0.5]])
    mask = np.ones((1, 2), dtype=bool)
    deltas = lambda_advantages(rewards, values, mask, gamma=1.0, lam=0.0)
    assert deltas.tolist() == [[0.0, 0.5]]
    assert lambda_advantages(rewards, values, mask, gamma=1.0, lam=1.0).tolist() == [[0.5, 0.5]]


def test_8_the_critic():
    mask = torch.tensor([[True, True]])
    values, returns = float64([[0.5, 1.0]]), float64([[1.0, 1.0]])
    loss = value_loss(values, values, returns, mask, reduce=mean_of(mask), clip=None).loss
    assert 2 * loss.item() == pytest.approx(0.125)  # the mean of .25 and 0
    right = float64([[0.0, 1.0, 2.0, 3.0]])
    all_on = torch.ones_like(right, dtype=torch.bool)
    assert ExplainedVariance.of(right, right, all_on).result() == 1.0
    assert ExplainedVariance.of(0 * right, right, all_on).result() == 0.0
    assert ExplainedVariance.of(-right, right, all_on).result() < 0
    assert math.isnan(ExplainedVariance.of(right, 0 * right + 1, all_on).result())


def test_9_forced_zeros_are_no_alarm():
    """One step a batch: the ratio is 1, so clip fraction and ppo_kl are 0 whatever is learned."""
    mask = torch.tensor([[True, True]])
    logprobs = float64([[-1.0, -2.0]]).requires_grad_()
    inputs = PolicyLossInputs(
        logprobs=logprobs,
        old_logprobs=logprobs.detach(),
        advantages=float64([[1.0, -1.0]]),
        mask=mask,
    )
    output = ppo_clip_loss(inputs, reduce=mean_of(mask))
    output.loss.backward()
    assert output.metrics["actor/pg_clipfrac"].result() == 0
    assert output.metrics["actor/ppo_kl"].result() == 0
    assert logprobs.grad.tolist() == [[-0.5, 0.5]]


def test_10_staleness():
    group = RolloutGroup(group_id="g", task=Task(prompt="q"), rollouts=(rollout(1), rollout(1)))
    buffer = GroupBuffer(max_staleness=2, stale="wait")
    buffer.put(Offer(step=1, place=0, index=0, group=group))
    assert buffer.take(1, step=1, version=4) == []
    assert buffer.num_dropped == 1
    metrics = staleness_metrics(group.rollouts, 4)
    assert {value for key, value in metrics.items() if "staleness" in key and "mean" in key} == {3}


def test_11_a_stored_sample_has_its_columns():
    asked = {"prompt", "response", "reward", "advantage", "token_ids", "logprobs", "values"}
    asked |= {"advantages", "ref_logprobs", "mask", "length"}
    assert asked <= set(TABLE_TYPES)


def rollout(version):
    completion = Completion(
        text="5",
        token_ids=(7, 8),
        logprobs=(-0.1, -0.2),
        version_spans=((0, 2, version),),
    )
    task = Task(prompt="q")
    return Rollout(
        id="r",
        task=task,
        group_id="g",
        sample_index=0,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(1,), completion=completion),),
    )
