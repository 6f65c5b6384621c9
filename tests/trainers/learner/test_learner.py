"""The learner on a real model: the split of a mini-batch changes nothing, and learning learns."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.algorithms.losses import LossOutput, ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.sample import TrainingSample

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import GeneratorError, PluginError, RlgymError
from rlgym_llm.specs import Kind

LENGTHS = [(3, 5), (4, 2), (6, 9), (2, 1), (5, 7), (3, 3)]
"""Prompt and response lengths of the samples; three groups of two siblings."""


def make_samples(policy, *, temperature=1.0):
    """Random ids whose rollout log-probs are the policy's own, advantages +1 and -1 in turn."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for i, (num_prompt, num_response) in enumerate(LENGTHS):
        length = num_prompt + num_response
        ids = torch.randint(6, 100, (length,), generator=draw).tolist()
        mask = (False,) * num_prompt + (True,) * num_response
        advantage = 1.0 if i % 2 == 0 else -1.0
        bare = TrainingSample(
            token_ids=tuple(ids),
            loss_mask=mask,
            rollout_logprobs=(0.0,) * length,
            policy_versions=(-1,) * num_prompt + (0,) * num_response,
            rollout_id=str(i),
            group_id=str(i // 2),
            sample_index=i % 2,
            advantages=tuple(advantage * on for on in mask),
        )
        with torch.no_grad():
            found, _ = batch_logprobs(
                policy.model, collate([bare], pad_id=0), temperature=temperature
            )
        samples.append(
            TrainingSample(
                **{
                    name: getattr(bare, name)
                    for name in TrainingSample.__slots__
                    if name != "rollout_logprobs"
                },
                rollout_logprobs=tuple(found[0].tolist()),
            )
        )
    return samples


LOSSES = {spec.name: spec.load() for spec in rlgym_register(Kind.POLICY_LOSS)}


def make_learner(
    policy, *, mini=3, micro=6, temperature=1.0, reference=None, policy_loss=ppo_clip_loss, **actor
):
    config = ActorConfig.model_validate({"optim": {"lr": 1e-2}, **actor})
    return Learner(
        policy,
        config,
        policy_loss=bind_policy_loss(policy_loss, config),
        mini_batch_prompts=mini,
        micro_batch_size=micro,
        reference_batch_size=2,
        temperature=temperature,
        max_response_length=10,
        num_updates=10,
        seed=0,
        reference=reference,
    )


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_the_micro_batch_split_and_the_order_change_nothing(exact_policy, mode):
    policy = exact_policy
    samples = make_samples(policy)
    results = []
    for micro, order in ((6, 1), (1, 1), (4, -1)):
        twin = copy.deepcopy(policy)
        learner = make_learner(twin, micro=micro, loss_agg_mode=mode, optim={"lr": 1e-3})
        metrics = learner.update(samples[::order], step=1)
        results.append((weights(twin), metrics["actor/pg_loss"], metrics["actor/grad_norm"]))
    for after, loss, norm in results[1:]:
        assert torch.allclose(after, results[0][0], atol=1e-9, rtol=0)
        assert loss == pytest.approx(results[0][1], abs=1e-9)
        assert norm == pytest.approx(results[0][2], rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_no_loss_is_changed_by_the_split_over_several_epochs(policy, loss):
    policy.model.double()
    samples = weighted(make_samples(policy), lambda i, t: (3 * i + t) % 4 / 2)
    results = []
    for micro, order in ((6, 1), (1, -1), (4, 1)):
        twin = copy.deepcopy(policy)
        options = {"loss_agg_mode": "prompt-mean", "optim": {"lr": 1e-3}, "ppo_epochs": 3}
        learner = make_learner(twin, micro=micro, policy_loss=loss, **options)
        metrics = learner.update(samples[::order], step=1)
        assert metrics["actor/ppo_kl"] != 0  # the policy has moved away from its samples
        results.append((weights(twin), metrics["actor/grad_norm"]))
    assert not torch.equal(results[0][0], weights(policy))
    for after, norm in results[1:]:
        assert torch.allclose(after, results[0][0], atol=1e-9, rtol=0)
        assert norm == pytest.approx(results[0][1], rel=1e-7)


def test_on_policy_the_ratio_is_one_and_the_loss_is_minus_the_mean_advantage(policy):
    metrics = make_learner(policy).update(make_samples(policy), step=1)
    # 5+9+7 tokens at advantage +1 and 2+1+3 at -1: the mean is 15/27.
    assert metrics["actor/pg_loss"] == pytest.approx(-15 / 27, abs=1e-5)
    assert metrics["training/rollout_ratio_diff_max"] < 1e-4
    assert metrics["actor/ppo_kl"] == pytest.approx(0, abs=1e-5)


def test_learning_makes_good_tokens_likelier_and_bad_ones_less_likely(policy):
    samples = make_samples(policy)
    learner = make_learner(policy, optim={"lr": 1e-3})
    for step in range(1, 6):
        learner.update(samples, step=step)
    with torch.no_grad():
        after, _ = batch_logprobs(policy.model, collate(samples, pad_id=0), temperature=1.0)
    for row, sample in zip(after, samples, strict=True):
        gain = float(row.sum()) - sum(sample.rollout_logprobs)
        assert gain * max(sample.advantages, key=abs) > 0


def test_mini_batches_take_whole_groups_and_one_step_each(policy):
    learner = make_learner(policy, mini=1, ppo_epochs=2)
    learner.update(make_samples(policy), step=1)
    states = [state["step"] for state in learner._stepper.optimizer.state.values()]
    assert {float(step) for step in states} == {6.0}


def test_a_gradient_that_is_not_finite_skips_the_step_and_is_counted(policy):
    samples = make_samples(policy)
    learner = make_learner(policy)
    handle = policy.model.lm_head.weight.register_hook(lambda grad: grad * math.nan)
    before = weights(policy).clone()
    metrics = learner.update(samples, step=1)
    assert metrics["actor/skipped_ratio"] == 1
    assert torch.equal(weights(policy), before)
    handle.remove()
    assert make_learner(policy).update(samples, step=2)["actor/skipped_ratio"] == 0


@pytest.mark.parametrize(
    "optim",
    [{"lr": 100.0, "weight_decay": 1e30}, {"lr": 1e-3, "weight_decay": 1e300}],
    ids=str,
)
def test_weights_that_are_not_finite_end_the_run(policy, optim):
    learner = make_learner(policy, ppo_epochs=2, optim=optim)
    message = r"actor: the weights are not finite after update 1 \(norm (inf|nan)\): lower --actor"
    with pytest.raises(RlgymError, match=message):
        learner.update(make_samples(policy), step=1)
    assert learner.is_broken
    assert not weights(policy).norm().isfinite()
    assert (learner.updates_done, learner.last_step) == (1, 0)


def test_a_loss_that_fails_ends_the_update_and_changes_nothing(policy):
    error, calls = PluginError("the loss has no mood"), []

    def moody(inputs, *, reduce):
        calls.append(inputs)
        if len(calls) == 2:
            raise error
        return LossOutput(loss=reduce(-inputs.logprobs, inputs.mask), metrics={})

    learner = make_learner(policy, micro=2, policy_loss=moody)
    samples, before = make_samples(policy), weights(policy).clone()
    with pytest.raises(PluginError) as raised:
        learner.update(samples, step=1)
    assert raised.value is error
    assert torch.equal(weights(policy), before)
    assert (learner.updates_done, learner.last_step, learner.is_broken) == (0, 0, False)
    assert learner.update(samples, step=2)["actor/grad_norm"] > 0  # what failed left no gradient


def test_one_skipped_update_leaves_the_means_of_the_others(policy):
    samples = make_samples(policy)
    samples[0] = replace(samples[0], advantages=(math.inf,) * len(samples[0].advantages))
    metrics = make_learner(policy, mini=1).update(samples, step=1)
    assert 0 < metrics["actor/skipped_ratio"] < 1
    assert metrics["actor/grad_norm"] > 0
    assert math.isfinite(metrics["actor/loss"])
    assert "actor/grad_norm" not in make_learner(policy).update(samples, step=2)


def test_the_kl_term_pulls_back_to_the_reference(policy):
    samples = make_samples(policy)
    reference = copy.deepcopy(policy.model).requires_grad_(False)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator()))
    samples = [
        TrainingSample(
            **{
                name: getattr(sample, name)
                for name in TrainingSample.__slots__
                if name != "advantages"
            },
            advantages=(0.0,) * sample.num_tokens,
        )
        for sample in make_samples(policy)
    ]
    learner = make_learner(
        policy,
        reference=reference,
        use_kl_loss=True,
        kl_loss_coef=1.0,
        kl_loss_type="k2",
        optim={"lr": 1e-3},
    )
    samples = learner.add_reference(samples)
    assert [sample.rollout_id for sample in samples] == [str(i) for i in range(len(LENGTHS))]
    values = [learner.update(samples, step=step)["actor/kl_loss"] for step in range(1, 8)]
    assert values[0] > 0
    assert values[-1] < 0.5 * values[0]


def test_the_temperature_is_that_of_the_rollout(policy):
    samples = make_samples(policy, temperature=0.6)
    right = make_learner(copy.deepcopy(policy), temperature=0.6).update(samples, step=1)
    wrong = make_learner(policy, temperature=1.0).update(samples, step=1)
    assert wrong["training/rollout_ratio_diff_max"] > 0.1
    assert right["training/rollout_ratio_diff_max"] < 1e-4


def test_samples_of_another_policy_are_refused_before_anything_is_learned(policy):
    samples = [
        replace(sample, rollout_logprobs=tuple(value / 3 for value in sample.rollout_logprobs))
        for sample in make_samples(policy)
    ]
    before = weights(policy).clone()
    with pytest.raises(GeneratorError, match="generator and learner disagree"):
        make_learner(policy).update(samples, step=1)
    assert torch.equal(weights(policy), before)


def test_old_log_probs_of_the_samples_count_where_they_are_given(policy):
    # Half the probability before: the ratio is 2, and ppo_kl is the mean of old - new = -log 2.
    samples = [
        replace(
            s,
            old_logprobs=tuple(
                v - math.log(2) * on for v, on in zip(s.rollout_logprobs, s.loss_mask, strict=True)
            ),
        )
        for s in make_samples(policy)
    ]
    metrics = make_learner(policy).update(samples, step=1)
    assert metrics["actor/ppo_kl"] == pytest.approx(-math.log(2), abs=1e-4)


# --- samples of another policy


def weighted(samples, weight):
    """The samples with ``weight(sample index, token index)`` on their trained tokens."""
    return [
        replace(
            sample,
            is_weights=tuple(weight(i, t) if on else 0.0 for t, on in enumerate(sample.loss_mask)),
        )
        for i, sample in enumerate(samples)
    ]


def of_another_policy(samples, *, version, factor=1 / 3):
    """The samples as a policy of this version would have sampled them, with other log-probs."""
    return [
        replace(
            sample,
            rollout_logprobs=tuple(factor * value for value in sample.rollout_logprobs),
            policy_versions=tuple(version if on else -1 for on in sample.loss_mask),
        )
        for sample in samples
    ]


def test_old_log_probs_are_the_learners_whoever_sampled(policy):
    samples = make_samples(policy)
    learner = make_learner(policy)
    scored = learner.add_old_logprobs(of_another_policy(samples, version=0))
    assert [sample.rollout_id for sample in scored] == [sample.rollout_id for sample in samples]
    for sample, own in zip(scored, samples, strict=True):
        assert sample.old_logprobs == pytest.approx(own.rollout_logprobs, abs=1e-5)
    metrics = learner.update(scored, step=1, version=1)
    assert metrics["actor/ppo_kl"] == pytest.approx(0, abs=1e-5)
    assert metrics["actor/pg_clipfrac"] == 0


def test_weights_multiply_the_token_losses_and_leave_the_denominator(policy):
    weights_of = [0.5, 2.0, 1.0, 0.0, 1.5, 0.25]
    samples = weighted(make_samples(policy), lambda i, _: weights_of[i])
    metrics = make_learner(policy).update(samples, step=1)
    # Tokens 5, 2, 9, 1, 7, 3 at advantages +1, -1 in turn, at ratio 1, over all 27 of them.
    total = 5 * 0.5 - 2 * 2 + 9 * 1 - 1 * 0 + 7 * 1.5 - 3 * 0.25
    assert metrics["actor/pg_loss"] == pytest.approx(-total / 27, abs=1e-5)


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_with_weights_and_rejection_the_split_still_changes_nothing(exact_policy, mode):
    policy = exact_policy
    samples = weighted(make_samples(policy), lambda i, t: (3 * i + t) % 4 / 2)
    reference = copy.deepcopy(policy.model).requires_grad_(False)
    options = {"loss_agg_mode": mode, "use_kl_loss": True, "entropy_coeff": 0.01}
    results = []
    for micro, order in ((6, 1), (1, 1), (4, -1)):
        twin = copy.deepcopy(policy)
        learner = make_learner(
            twin, micro=micro, reference=reference, optim={"lr": 1e-3}, ppo_epochs=2, **options
        )
        metrics = learner.update(learner.add_reference(samples)[::order], step=1)
        results.append((weights(twin), metrics))
    for after, metrics in results[1:]:
        assert torch.allclose(after, results[0][0], atol=1e-9, rtol=0)
        for name in ("actor/loss", "actor/pg_loss", "actor/kl_loss", "actor/grad_norm"):
            assert metrics[name] == pytest.approx(results[0][1][name], rel=1e-7, abs=1e-9)


def test_what_is_rejected_moves_nothing_in_no_term_of_the_loss(policy):
    reference = copy.deepcopy(policy.model).requires_grad_(False)
    with torch.no_grad():
        reference.lm_head.weight.mul_(0.9)
    learner = make_learner(
        policy, reference=reference, use_kl_loss=True, kl_loss_coef=1.0, entropy_coeff=0.1
    )
    samples = weighted(learner.add_reference(make_samples(policy)), lambda *_: 0.0)
    before = weights(policy).clone()
    metrics = learner.update(samples, step=1)
    assert metrics["actor/grad_norm"] == 0
    assert metrics["actor/loss"] == 0
    assert torch.equal(weights(policy), before)


def test_the_kl_term_is_of_the_tokens_kept_over_the_denominators_of_all_and_not_weighted(policy):
    reference = copy.deepcopy(policy.model).requires_grad_(False)
    with torch.no_grad():
        reference.lm_head.weight.mul_(0.9)
    learner = make_learner(
        policy,
        reference=reference,
        use_kl_loss=True,
        kl_loss_type="k2",
        loss_agg_mode="seq-mean-token-mean",
    )
    samples = learner.add_reference(make_samples(policy))
    metrics = learner.update(weighted(samples, lambda _, t: 1.5 * (t % 2)), step=1)
    expected = 0.0
    for s in samples:
        streams = zip(s.rollout_logprobs, s.ref_logprobs, s.loss_mask, strict=True)
        k2 = [0.5 * (own - ref) ** 2 * on * (t % 2) for t, (own, ref, on) in enumerate(streams)]
        expected += sum(k2) / s.num_trained_tokens / len(samples)
    assert metrics["actor/kl_loss"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", ["kl", "k3+"])
def test_the_unbiased_kl_term_is_of_the_ratio_to_the_old_log_probs(policy, kind):
    reference = copy.deepcopy(policy.model).requires_grad_(False)
    with torch.no_grad():
        reference.lm_head.weight.mul_(0.9)
    options = {"reference": reference, "use_kl_loss": True, "kl_loss_type": kind}
    # The old probabilities are half, 1 and 2 times those of the policy, by the token's position.
    shifts = [math.log(2) * (t % 3 - 1) for t in range(20)]
    samples = [
        replace(s, old_logprobs=tuple(map(sum, zip(s.rollout_logprobs, shifts, strict=False))))
        for s in make_learner(policy, **options).add_reference(make_samples(policy))
    ]
    plain, unbiased = [], []
    for s in samples:
        streams = zip(s.rollout_logprobs, s.old_logprobs, s.ref_logprobs, s.loss_mask, strict=True)
        for own, old, ref, is_trained in streams:
            if is_trained:
                d = ref - own
                value = -d if kind == "kl" else math.exp(d) - d - 1
                plain.append(value)
                unbiased.append(math.exp(own - old) * value)
    for is_unbiased, values in ((False, plain), (True, unbiased)):
        learner = make_learner(copy.deepcopy(policy), kl_loss_unbiased=is_unbiased, **options)
        found = learner.update(samples, step=1)["actor/kl_loss"]
        assert found == pytest.approx(sum(values) / len(values), rel=1e-3)
    assert abs(sum(unbiased) / sum(plain) - 1) > 0.02  # they would be told apart


def test_a_rejected_sample_trains_as_one_without_advantage(policy):
    samples = make_samples(policy)
    outcomes = []
    for changed in (
        weighted(samples, lambda i, _: float(i != 2)),
        [
            replace(s, advantages=(0.0,) * s.num_tokens) if i == 2 else s
            for i, s in enumerate(samples)
        ],
    ):
        twin = copy.deepcopy(policy)
        outcomes.append(make_learner(twin).update(changed, step=1))
        outcomes.append(weights(twin))
    assert outcomes[0]["actor/pg_loss"] == pytest.approx(outcomes[2]["actor/pg_loss"], abs=1e-7)
    assert torch.allclose(outcomes[1], outcomes[3], atol=1e-7)


def test_a_loss_of_someone_else_is_weighted_without_knowing_of_weights(policy):
    def reinforce(inputs, *, reduce, **_):
        return LossOutput(
            loss=reduce(-inputs.advantages * inputs.logprobs, inputs.mask), metrics={}
        )

    samples = make_samples(policy)
    scale = [0.5, 2.0, 1.0, 0.0, 1.5, 0.25]
    learner = make_learner(policy, policy_loss=reinforce)
    metrics = learner.update(weighted(samples, lambda i, _: scale[i]), step=1)
    total = sum(
        -w * a * value
        for w, s in zip(scale, samples, strict=True)
        for a, value in zip(s.advantages, s.rollout_logprobs, strict=True)
    )
    assert metrics["actor/loss"] == pytest.approx(total / 27, rel=1e-4)


def test_samples_known_to_be_of_an_older_policy_do_not_end_the_run(policy):
    stale = of_another_policy(make_samples(policy), version=3)
    learner = make_learner(policy)
    metrics = learner.update(stale, step=1, version=4)
    assert "training/rollout_probs_diff_mean" not in metrics  # there is nothing it could be of
    with pytest.raises(GeneratorError, match="generator and learner disagree"):
        learner.update(of_another_policy(make_samples(policy), version=4), step=2, version=4)


def test_only_tokens_of_the_current_version_are_held_against_the_learner(policy):
    samples = make_samples(policy)
    mixed = [*samples[:2], *of_another_policy(samples[2:], version=5)]
    mixed[:2] = of_another_policy(mixed[:2], version=6, factor=1.0)
    metrics = make_learner(policy, micro=2).update(mixed, step=1, version=6)
    assert metrics["training/rollout_ratio_diff_max"] < 1e-4


def test_gradients_are_let_go_of_with_the_step(policy):
    learner = make_learner(policy)
    learner.update(make_samples(policy), step=1)
    assert all(parameter.grad is None for parameter in policy.model.parameters())
    assert learner.last_step == 1
