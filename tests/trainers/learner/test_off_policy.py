"""The correction of one step: what the configuration asks for, and what becomes of the samples."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.correction_rules import correction_rules
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.off_policy import correct
from rlgym_llm_trainers.learner.sample import TrainingSample

from rlgym_llm.config_schema import ActorConfig, RolloutCorrectionConfig
from rlgym_llm.errors import ConfigError


def config(**values):
    return RolloutCorrectionConfig.model_validate(values)


def sample(ratios, *, rollout_id="a", group_id="g", advantage=1.0):
    """A prompt of one token and a sampled token for each ratio; the learner gives each -1."""
    size = len(ratios)
    return TrainingSample(
        token_ids=(5,) * (size + 1),
        loss_mask=(False,) + (True,) * size,
        rollout_logprobs=(0.0, *(-1.0 - math.log(ratio) for ratio in ratios)),
        policy_versions=(-1,) + (0,) * size,
        rollout_id=rollout_id,
        group_id=group_id,
        sample_index=0,
        advantages=(0.0,) + (advantage,) * size,
    )


class Scorer:
    """A learner under which every sampled token has log-prob -1."""

    def __init__(self, *, is_exact=True):
        self.passes = 0
        self.is_exact = is_exact

    def add_old_logprobs(self, samples):
        self.passes += 1
        return [
            replace(s, old_logprobs=tuple(-1.0 if on else 0.0 for on in s.loss_mask))
            for s in samples
        ]


def done(samples, *, max_staleness=0, is_exact=True, **values):
    scorer = Scorer(is_exact=is_exact)
    found, metrics = correct(scorer, samples, config(**values), max_staleness=max_staleness)
    return found, metrics, scorer.passes


# --- the rules


@pytest.mark.parametrize(
    ("values", "max_staleness", "weigh_by", "scores"),
    [
        ({}, 0, None, False),
        ({}, 1, "token", True),
        ({"rollout_is": None}, 1, None, True),
        ({"rollout_is": None}, 0, None, False),
        ({"rollout_is": "sequence"}, 0, "sequence", True),
        ({"rollout_rs": "geometric"}, 0, None, True),
        ({"bypass_mode": True}, 0, None, False),
        ({"bypass_mode": True}, 2, None, False),
        ({"bypass_mode": True, "rollout_is": None, "rollout_rs": "token"}, 2, None, True),
    ],
)
def test_what_applies_when(values, max_staleness, weigh_by, scores):
    rules = correction_rules(config(**values), max_staleness=max_staleness)
    assert (rules.weigh_by, rules.scores) == (weigh_by, scores)
    assert rules.ratio_from_generator == values.get("bypass_mode", False)


@pytest.mark.parametrize(("bypass_mode", "passes"), [(False, 1), (True, 0)])
def test_log_probs_in_bfloat16_are_taken_anew(bypass_mode, passes):
    given = sample([1.5, 0.5, 6.0])
    (found,), _, num_passes = done([given], is_exact=False, bypass_mode=bypass_mode)
    assert num_passes == passes
    assert found.is_weights is None
    assert (found.old_logprobs is None) == bypass_mode


def test_bounds_of_rejection_default_to_the_threshold_and_its_inverse():
    rules = correction_rules(config(rollout_rs="token", rollout_is_threshold=4.0), max_staleness=0)
    assert rules.bounds == (0.25, 4.0)
    rules = correction_rules(
        config(rollout_rs="token", rollout_rs_threshold=5.0, rollout_rs_threshold_lower=0.5),
        max_staleness=0,
    )
    assert (rules.bounds, rules.threshold) == ((0.5, 5.0), 2.0)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_bypass_mode_refuses_to_count_the_same_difference_twice(level):
    with pytest.raises(ConfigError, match="twice") as caught:
        correction_rules(config(bypass_mode=True, rollout_is=level), max_staleness=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"rollout_rs_threshold": 0.9},
        {"rollout_rs_threshold": 1.0},
        {"rollout_rs_threshold": 3.0, "rollout_rs_threshold_lower": 1.5},
    ],
)
def test_bounds_that_reject_equal_policies_are_refused(values):
    with pytest.raises(ConfigError, match="do not enclose 1"):
        correction_rules(config(rollout_rs="token", **values), max_staleness=0)


@pytest.mark.parametrize(
    ("values", "max_staleness"),
    [
        ({"rollout_rs_threshold": 3.0}, 1),
        ({"rollout_rs_threshold_lower": 0.5}, 1),
        ({"rollout_is_batch_normalize": True}, 0),
        ({"rollout_is_threshold": 3.0}, 0),
        ({"rollout_is_threshold": 3.0, "bypass_mode": True}, 1),
        ({"rollout_is_batch_normalize": True, "bypass_mode": True}, 1),
        ({"rollout_is_batch_normalize": True, "rollout_is": None}, 1),
    ],
)
def test_what_has_no_effect_is_refused(values, max_staleness):
    with pytest.raises(ConfigError, match=f"{next(iter(values))} .*has no effect") as caught:
        correction_rules(config(**values), max_staleness=max_staleness)
    assert "\n" not in str(caught.value)


# --- the samples


@pytest.mark.parametrize(
    ("values", "max_staleness"), [({}, 0), ({"rollout_is": None}, 0), ({"bypass_mode": True}, 3)]
)
def test_where_nothing_is_to_be_done_nothing_is_done(values, max_staleness):
    samples = [sample([1.5, 0.5])]
    found, metrics, passes = done(samples, max_staleness=max_staleness, **values)
    assert (found, metrics, passes) == (samples, {}, 0)
    assert done([], max_staleness=2)[0] == []


def test_stale_samples_get_truncated_token_weights_by_themselves():
    (found,), metrics, passes = done([sample([1.5, 0.5, 6.0])], max_staleness=1)
    assert found.is_weights == pytest.approx((0.0, 1.5, 0.5, 2.0))
    assert found.old_logprobs == (0.0, -1.0, -1.0, -1.0)
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(4 / 3)
    assert "rollout_corr/rollout_rs_masked_fraction" not in metrics
    assert passes == 1


def test_without_weights_the_ratio_still_starts_at_the_learner_and_the_gap_is_reported():
    (found,), metrics, _ = done([sample([1.5, 0.5])], max_staleness=1, rollout_is=None)
    assert found.is_weights is None
    assert found.old_logprobs == (0.0, -1.0, -1.0)
    assert metrics["rollout_corr/kl"] == pytest.approx(-math.log(0.75) / 2)
    assert "rollout_corr/rollout_is_mean" not in metrics


def test_rejection_in_bypass_mode_leaves_the_ratio_to_the_generator():
    (found,), metrics, passes = done(
        [sample([1.5, 0.2, 1.0])], bypass_mode=True, rollout_rs="token", max_staleness=2
    )
    assert found.is_weights == (0.0, 1.0, 0.0, 1.0)
    assert found.old_logprobs is None
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1 / 3)
    assert passes == 1


def test_the_mean_of_the_weights_is_of_the_whole_step():
    samples = [sample([2.0, 1.0], rollout_id="a"), sample([0.5], rollout_id="b", group_id="h")]
    found, metrics, _ = done(samples, rollout_is="token", rollout_is_batch_normalize=True)
    mean = 3.5 / 3
    assert found[0].is_weights == pytest.approx((0.0, 2 / mean, 1 / mean))
    assert found[1].is_weights == pytest.approx((0.0, 0.5 / mean))
    assert metrics["rollout_corr/rollout_is_batch_norm_factor"] == pytest.approx(mean)


def test_a_sequence_is_weighed_and_rejected_whole():
    samples = [sample([1.6, 1.6], rollout_id="a"), sample([1.1, 0.7, 1.1], rollout_id="b")]
    found, _, _ = done(samples, rollout_is="sequence", rollout_rs="sequence")
    assert found[0].is_weights == (0.0, 0.0, 0.0)  # 2.56 is above 2
    assert found[1].is_weights == pytest.approx((0.0, *[1.1 * 0.7 * 1.1] * 3))


# --- with a real learner


def make_learner(policy, *, mini=2, **actor):
    config = ActorConfig.model_validate({"optim": {"lr": 1e-3}, **actor})
    return Learner(
        policy,
        config,
        policy_loss=bind_policy_loss(ppo_clip_loss, config),
        mini_batch_prompts=mini,
        micro_batch_size=2,
        reference_batch_size=2,
        temperature=1.0,
        max_response_length=8,
        num_updates=10,
        seed=0,
    )


def sampled_by(policy):
    """Four random sequences whose rollout log-probs are this policy's."""
    draw = torch.Generator().manual_seed(3)
    bare = []
    for i, size in enumerate((4, 2, 6, 3)):
        ids = torch.randint(6, 100, (size + 2,), generator=draw).tolist()
        bare.append(
            TrainingSample(
                token_ids=tuple(ids),
                loss_mask=(False, False) + (True,) * size,
                rollout_logprobs=(0.0,) * (size + 2),
                policy_versions=(-1, -1) + (0,) * size,
                rollout_id=str(i),
                group_id=str(i // 2),
                sample_index=i % 2,
                advantages=(0.0, 0.0) + ((-1.0) ** i,) * size,
            )
        )
    return [
        replace(s, rollout_logprobs=tuple(row[: s.num_tokens]))
        for s, row in zip(bare, scores(policy, bare), strict=True)
    ]


def scores(policy, samples):
    with torch.no_grad():
        found, _ = batch_logprobs(policy.model, collate(samples, pad_id=0), temperature=1.0)
    return found.tolist()


def moved(policy):
    """The policy some updates later."""
    later = copy.deepcopy(policy)
    with torch.no_grad():
        for parameter in later.model.parameters():
            noise = torch.Generator().manual_seed(parameter.numel())
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    return later


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def test_weights_are_the_learners_probabilities_over_the_generators(policy):
    samples, learner_policy = sampled_by(policy), moved(policy)
    rules = config(rollout_is="token", rollout_is_threshold=1.1)
    found, metrics = correct(make_learner(learner_policy), samples, rules, max_staleness=1)
    truncated = 0
    for s, row in zip(found, scores(learner_policy, samples), strict=True):
        for t, on in enumerate(s.loss_mask):
            ratio = math.exp(row[t] - s.rollout_logprobs[t])
            truncated += on and ratio > 1.1
            assert s.is_weights[t] == pytest.approx(min(ratio, 1.1) if on else 0.0, rel=1e-4)
    assert 0 < truncated < 15
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(truncated / 15)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_of_the_same_policy_a_corrected_step_is_the_uncorrected_one(policy, level):
    policy.model.double()
    samples = sampled_by(policy)
    rules = config(rollout_is=level, rollout_is_threshold=1e6, rollout_rs=level)
    results = []
    for corrects in (False, True):
        twin = copy.deepcopy(policy)
        learner = make_learner(twin, mini=1)
        used = samples
        if corrects:
            used, metrics = correct(learner, samples, rules, max_staleness=0)
            assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-5)
        learned = learner.update(used, step=1)
        results.append((weights(twin), learned["actor/grad_norm"]))
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-5)
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)


def test_stale_samples_train_in_both_modes_and_by_another_ratio(policy):
    samples, learner_policy = sampled_by(policy), moved(policy)
    ratios = {}
    for bypass in (False, True):
        learner = make_learner(copy.deepcopy(learner_policy))
        used, _ = correct(learner, samples, config(bypass_mode=bypass), max_staleness=1)
        metrics = learner.update(used, step=1, version=1)
        assert metrics["actor/grad_norm"] > 0
        ratios[bypass] = metrics["actor/ppo_kl"]
    # Decoupled, the ratio starts at 1; in bypass mode at what lies between the two policies.
    assert ratios[False] == pytest.approx(0, abs=1e-5)
    gaps = [
        s.rollout_logprobs[t] - row[t]
        for s, row in zip(samples, scores(learner_policy, samples), strict=True)
        for t, on in enumerate(s.loss_mask)
        if on
    ]
    assert ratios[True] == pytest.approx(sum(gaps) / len(gaps), abs=1e-4)
    assert abs(ratios[True]) > 1e-3
