"""The critic on a model that can be worked out by hand, and on a real one."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.critic import Critic
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.value_scorer import ValueScorer
from rlgym_llm_trainers.models.critic import ValueModel
from torch import nn

from rlgym_llm.config_critic import CriticConfig
from rlgym_llm.errors import RlgymError

LENGTHS = [(3, 5), (3, 2), (6, 9), (2, 1), (5, 7), (3, 3)]
"""Prompt and response lengths of the samples; three groups of two siblings."""


class SumOfIds(nn.Module):
    """A body whose state at t is the sum of the ids up to there, times a weight of 1."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.longest = 0
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=1))

    @property
    def base_model(self):
        return self

    def forward(self, input_ids, attention_mask, **ignored):
        self.longest = max(self.longest, input_ids.shape[1])
        ids = (input_ids * attention_mask).float()
        return SimpleNamespace(last_hidden_state=(self.scale * ids).cumsum(-1)[..., None])


@pytest.fixture
def summing():
    """A value model for which V of a state is the sum of its ids."""
    model = ValueModel(SumOfIds())
    model.head.weight.data.fill_(1.0)
    return model


def sample(ids, mask, *, name="0", group="g", **streams):
    return TrainingSample(
        token_ids=tuple(ids),
        loss_mask=tuple(map(bool, mask)),
        rollout_logprobs=tuple(-0.5 * on for on in mask),
        policy_versions=tuple(0 if on else -1 for on in mask),
        rollout_id=name,
        group_id=group,
        sample_index=0,
        **streams,
    )


def make_critic(
    model, policy, *, mini=3, micro=6, num_epochs=1, mode="token-mean", max_tokens=None, **critic
):
    config = CriticConfig.model_validate({"optim": {"lr": 1e-3}, **critic})
    return Critic(
        model,
        policy,
        config,
        loss_agg_mode=mode,
        mini_batch_prompts=mini,
        micro_batch_size=micro,
        max_tokens=max_tokens,
        num_epochs=num_epochs,
        max_response_length=10,
        num_updates=100,
    )


def make_samples():
    """Random ids; siblings share their prompt. Returns between 0 and 1, values of 0."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for i, (num_prompt, num_response) in enumerate(LENGTHS):
        length = num_prompt + num_response
        ids = torch.randint(6, 100, (length,), generator=draw).tolist()
        if i % 2 and LENGTHS[i - 1][0] == num_prompt:
            ids[:num_prompt] = samples[-1].token_ids[:num_prompt]
        mask = [0] * num_prompt + [1] * num_response
        returns = torch.rand(length, generator=draw).tolist()
        streams = {"returns": tuple(returns), "values": (0.0,) * length}
        samples.append(sample(ids, mask, name=str(i), group=str(i // 2), **streams))
    return samples


def real_model(policy):
    """A value model on a copy of the policy's body, its head not 0."""
    model = ValueModel(copy.deepcopy(policy.model.base_model))
    draw = torch.Generator().manual_seed(2)
    model.head.weight.data.normal_(generator=draw)
    return model


def test_a_value_is_of_the_state_before_its_token(summing, policy):
    # Prompt 1 2, reply 4 5, an observation 7, reply 8: V before 4, 5 and 8.
    one = sample([1, 2, 4, 5, 7, 8], [0, 0, 1, 1, 0, 1])
    other = sample([3, 6], [0, 1], name="1")
    critic = make_critic(summing, policy)
    (found, short), bootstrap = critic.add_values([one, other], cut_off={"0"})
    assert found.values == (0.0, 0.0, 1 + 2, 1 + 2 + 4, 0.0, 1 + 2 + 4 + 5 + 7)
    assert short.values == (0.0, 3.0)
    assert bootstrap == {"0": 1 + 2 + 4 + 5 + 7 + 8}  # of the state after the last token
    assert replace(found, values=None) == one  # nothing else is touched


def test_the_state_after_the_last_token_may_be_after_an_observation(summing, policy):
    one = sample([1, 2, 4], [0, 1, 0], ref_logprobs=(0.0, -1.0, 0.0))
    (found,), bootstrap = make_critic(summing, policy).add_values([one], cut_off={"0", "gone"})
    assert found.values == (0.0, 1.0, 0.0)
    assert bootstrap == {"0": 1 + 2 + 4}


def test_the_longest_sample_fits_with_the_state_after_it(summing, policy):
    critic = make_critic(summing, policy, max_tokens=3)
    (found,), bootstrap = critic.add_values([sample([1, 2, 4], [0, 1, 1])], cut_off={"0"})
    assert summing.body.longest == 3  # of all that a model may have positions for
    assert (found.values, bootstrap) == ((0.0, 1.0, 3.0), {"0": 7.0})


def test_values_are_those_of_each_sequence_by_itself_and_in_the_order_given(exact_policy):
    model = real_model(exact_policy)
    samples = make_samples()
    expected = []
    with torch.no_grad():
        for one in samples:
            ids = torch.tensor([one.token_ids])
            states = model.body(input_ids=ids, use_cache=False).last_hidden_state[0]
            expected.append((states @ model.head.weight[0] + model.head.bias).tolist())
    critic = make_critic(model, exact_policy, micro=2)
    assert ValueScorer(model).is_packed
    for order in (1, -1):
        found, bootstrap = critic.add_values(samples[::order], cut_off={"1", "4"})
        assert [one.rollout_id for one in found] == [one.rollout_id for one in samples[::order]]
        assert sorted(bootstrap) == ["1", "4"]
        for one in found:
            after = expected[int(one.rollout_id)]
            right = [after[t - 1] * on for t, on in enumerate(one.loss_mask)]
            assert one.values == pytest.approx(right, abs=1e-9)
            if one.rollout_id in bootstrap:
                assert bootstrap[one.rollout_id] == pytest.approx(after[-1], abs=1e-9)


def test_packed_and_padded_values_have_the_same_gradient(exact_policy):
    batch = collate(make_samples(), pad_id=0)
    gradients = []
    for packs in (True, False):
        model = real_model(exact_policy)
        scorer = ValueScorer(model)
        if not packs:
            model.body.set_attn_implementation("sdpa")
        assert scorer.is_packed is packs
        scorer(batch).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert gradients[0].abs().max() > 1
    assert torch.allclose(*gradients, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_the_micro_batch_split_and_the_order_change_nothing(exact_policy, mode):
    samples = make_samples()
    results = []
    for micro, order in ((6, 1), (1, 1), (4, -1)):
        model = real_model(exact_policy)
        critic = make_critic(model, exact_policy, micro=micro, num_epochs=2, mode=mode)
        metrics = critic.update(samples[::order], step=1)
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        results.append((after, metrics["critic/vf_loss"], metrics["critic/grad_norm"]))
    for after, loss, norm in results[1:]:
        assert torch.allclose(after, results[0][0], atol=1e-9, rtol=0)
        assert loss == pytest.approx(results[0][1], abs=1e-9)
        assert norm == pytest.approx(results[0][2], rel=1e-7)


def test_metrics_of_an_update_by_hand(summing, policy):
    # States 3 and 7 against returns 4 and 7, and 5 against 3: half the mean of 1, 0 and 4.
    samples = [
        sample([1, 2, 4, 5], [0, 0, 1, 1], values=(0, 0, 3, 7), returns=(0, 0, 4, 7)),
        sample([5, 6], [0, 1], name="1", values=(0, 5), returns=(0, 3)),
    ]
    critic = make_critic(summing, policy, optim={"lr": 0.0})
    metrics = critic.update(samples, step=1)
    assert metrics == {
        "critic/vf_loss": pytest.approx(5 / 6),
        "critic/vf_clipfrac": 0.0,
        "critic/vpred_mean": 5.0,
        "critic/lr": 0.0,
        "critic/skipped_ratio": 0.0,
        # dL/dV is -1/3, 0 and 2/3; V = scale * w * sum + b, each of them 1, 1 and 0.
        # d scale = d w = -1/3 * 3 + 2/3 * 5 = 7/3, d b = 1/3.
        "critic/grad_norm": pytest.approx(math.sqrt(2 * (7 / 3) ** 2 + 1 / 9)),
    }
    # Values that moved by more than the clip since the samples got theirs.
    moved = [replace(one, values=(0,) * one.num_tokens) for one in samples]
    clipped = critic.update(moved, step=2)
    # 3, 7, 5 clipped to .5: errors 3.5, 6.5 and 2.5 against 1, 0 and 2 unclipped.
    assert clipped["critic/vf_loss"] == pytest.approx((3.5**2 + 6.5**2 + 2.5**2) / 6)
    assert clipped["critic/vf_clipfrac"] == 1.0
    assert clipped["critic/grad_norm"] == 0.0
    free = make_critic(summing, policy, optim={"lr": 0.0}, cliprange_value=None)
    assert free.update(moved, step=1)["critic/vf_loss"] == pytest.approx(5 / 6)


def test_rejected_tokens_train_no_value_and_stay_in_the_denominator(summing, policy):
    one = sample(
        [1, 2, 4, 5],
        [0, 0, 1, 1],
        values=(0, 0, 3, 7),
        returns=(0, 0, 4, 9),
        is_weights=(0.0, 0.0, 0.5, 0.0),
    )
    metrics = make_critic(summing, policy, optim={"lr": 0.0}).update([one], step=1)
    assert metrics["critic/vf_loss"] == pytest.approx(0.5 * 1 / 2)


def test_a_critic_learns_what_states_are_worth(policy):
    model, samples = real_model(policy), make_samples()
    critic = make_critic(model, policy, cliprange_value=None)
    losses = [critic.update(samples, step=step)["critic/vf_loss"] for step in range(1, 41)]
    assert losses[-1] < 0.1 * losses[0]
    assert critic.last_step == 40
    assert critic.updates_done == 40


def test_an_update_that_is_not_finite_is_skipped_and_counted(policy):
    model, samples = real_model(policy), make_samples()
    critic = make_critic(model, policy)
    before = copy.deepcopy(model.state_dict())
    bad = [replace(samples[0], returns=(math.nan,) * samples[0].num_tokens), *samples[1:]]
    assert critic.update(bad, step=1)["critic/skipped_ratio"] == 1.0
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert critic.last_step == 0


def test_weights_that_are_not_finite_end_the_run(policy):
    model, samples = real_model(policy), make_samples()
    critic = make_critic(model, policy)
    critic.update(samples, step=1)
    assert (critic.last_step, critic.is_broken) == (1, False)
    critic._stepper.optimizer.param_groups[0]["weight_decay"] = 1e300
    message = (
        r"critic: the weights are not finite after update 2 \(norm (inf|nan)\): lower --critic"
    )
    with pytest.raises(RlgymError, match=message):
        critic.update(samples, step=2)
    assert (critic.last_step, critic.updates_done, critic.is_broken) == (1, 2, True)


def test_a_critic_goes_on_from_what_it_stored(policy, tmp_path):
    samples = make_samples()
    whole, first = (make_critic(real_model(policy), policy) for _ in range(2))
    for step in (1, 2, 3):
        whole.update(samples, step=step)
    for step in (1, 2):
        first.update(samples, step=step)
    first.save(tmp_path / "state")
    second = make_critic(real_model(policy), policy)
    second.load(tmp_path / "state")
    assert (second.last_step, second.updates_done) == (2, 2)
    second.update(samples, step=3)
    assert second.add_values(samples) == whole.add_values(samples)
