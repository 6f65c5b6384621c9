"""Importance weights and rejections, each number worked out by hand."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode, aggregate, count_tokens
from rlgym_llm_trainers.algorithms.correction import pooled, rollout_correction
from rlgym_llm_trainers.algorithms.losses import (
    PolicyLossInputs,
    WeightedReduce,
    entropy_loss,
    kl_loss,
    ppo_clip_loss,
)

NAN, INF = math.nan, math.inf


def tensors(ratios, *, rollout=-1.0, dtype=torch.float64):
    """Old and rollout log-probs whose ratios are these, and the mask; None is a masked token."""
    logs = [[NAN if r is None else math.log(r) + rollout for r in row] for row in ratios]
    old = torch.tensor(logs, dtype=dtype)
    mask = ~old.isnan()
    return old, torch.where(mask, rollout, INF).to(dtype), mask


def corrected(ratios, **options):
    found = rollout_correction(*tensors(ratios), **options)
    metrics = {name.removeprefix("rollout_corr/"): v for name, v in found.metrics.items()}
    return found.weights, kept(found), metrics


def kept(found):
    """The tokens that still train, as a batch tells them."""
    return found.weights != 0


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


# --- weights


def test_token_weights_are_truncated_from_above_alone():
    weights, mask, metrics = corrected([[0.1, 1.0, 2.0, 8.0]], weigh_by="token", threshold=2.0)
    assert torch.allclose(weights, rows([0.1, 1.0, 2.0, 2.0]), atol=1e-12)
    assert mask.all()
    assert metrics["rollout_is_mean"] == pytest.approx(5.1 / 4)
    assert metrics["rollout_is_raw_mean"] == pytest.approx(11.1 / 4)
    # Second moments 0.01 + 1 + 4 + 4 = 9.01 over 4 tokens.
    assert metrics["rollout_is_std"] == pytest.approx(math.sqrt(9.01 / 4 - (5.1 / 4) ** 2))
    assert metrics["rollout_is_eff_sample_size"] == pytest.approx((5.1 / 4) ** 2 / (9.01 / 4))
    assert metrics["rollout_is_min"] == pytest.approx(0.1)
    assert metrics["rollout_is_max"] == pytest.approx(2.0)


def test_a_sequence_weighs_its_product_and_only_over_its_own_tokens():
    ratios = [[2.0, 0.5, 1.5], [3.0, 2.0, None], [None, 0.5, 0.5]]
    weights, _, metrics = corrected(ratios, weigh_by="sequence", threshold=2.5)
    expected = rows([1.5, 1.5, 1.5], [2.5, 2.5, 0.0], [0.0, 0.25, 0.25])
    assert torch.allclose(weights, expected, atol=1e-12)
    # Products 1.5, 6 and .25: one of three sequences is above 2.5, one below 1/2.5.
    assert metrics["rollout_is_ratio_fraction_high"] == pytest.approx(1 / 3)
    assert metrics["rollout_is_ratio_fraction_low"] == pytest.approx(1 / 3)
    assert metrics["rollout_is_oob_ratio"] == pytest.approx(4 / 7)  # of tokens
    assert metrics["rollout_is_mean"] == pytest.approx((3 * 1.5 + 2 * 2.5 + 2 * 0.25) / 7)
    assert metrics["rollout_is_seq_mean"] == pytest.approx((1.5 + 2.5 + 0.25) / 3)
    assert metrics["rollout_is_seq_max"] == pytest.approx(2.5)
    assert metrics["rollout_is_seq_min"] == pytest.approx(0.25)
    assert metrics["rollout_is_seq_max_deviation"] == pytest.approx(1.5)
    assert metrics["rollout_is_seq_fraction_high"] == pytest.approx(1 / 3)


def test_sequence_figures_of_token_weights():
    _, _, metrics = corrected([[1.0, 7.0], [0.2, 0.4], [1.0, None]], weigh_by="token")
    # Mean weights 1.5, .3 and 1 (mean ratios 4, .3, 1); tokens: 1 of 5 above 2, 2 below 1/2.
    assert metrics["rollout_is_seq_mean"] == pytest.approx(2.8 / 3)
    assert metrics["rollout_is_seq_std"] == pytest.approx(torch.tensor([1.5, 0.3, 1.0]).std())
    assert metrics["rollout_is_seq_fraction_high"] == pytest.approx(1 / 3)
    assert metrics["rollout_is_seq_fraction_low"] == pytest.approx(1 / 3)
    assert metrics["rollout_is_ratio_fraction_high"] == pytest.approx(1 / 5)
    assert metrics["rollout_is_ratio_fraction_low"] == pytest.approx(2 / 5)
    assert metrics["rollout_is_oob_ratio"] == pytest.approx(3 / 5)


def test_normalised_weights_have_mean_one_over_tokens_or_over_sequences():
    ratios = [[1.0, 2.0, 0.5], [0.5, None, None]]
    by_token, _, metrics = corrected(ratios, weigh_by="token", normalize=True)
    assert torch.allclose(by_token, rows([1, 2, 0.5], [0.5, 0, 0]) / (4 / 4), atol=1e-12)
    assert metrics["rollout_is_batch_norm_factor"] == pytest.approx(1.0)
    by_sequence, _, metrics = corrected(
        [[2.0, 1.5], [0.5, None]], weigh_by="sequence", threshold=2.0, normalize=True
    )
    # min(3, 2) and .5 have mean 1.25 over sequences.
    assert torch.allclose(by_sequence, rows([1.6, 1.6], [0.4, 0.0]), atol=1e-12)
    assert metrics["rollout_is_batch_norm_factor"] == pytest.approx(1.25)
    assert metrics["rollout_is_mean"] == pytest.approx(4.5 / 3)  # before the division


def test_a_ratio_beyond_the_clamp_is_finite_in_every_figure_that_exponentiates():
    old, rollout = rows([-1.0, -900.0, -1.0]), rows([-1.0, -1.0, -900.0])
    found = rollout_correction(
        old, rollout, torch.ones(1, 3, dtype=torch.bool), weigh_by="token", threshold=1e12
    )
    assert torch.allclose(found.weights, rows([1.0, math.exp(-20), math.exp(20)]))
    assert all(math.isfinite(value) for value in found.metrics.values())


# --- rejection


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        # Bounds .5 and 2. Products: 1, 4, 1.35, 11.25; geometric means 1, 1.59, 1.11, 2.24.
        ("token", [[0, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]]),
        ("sequence", [[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]),
        ("geometric", [[1, 1, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]]),
    ],
)
def test_each_level_rejects_what_its_own_ratio_says(level, expected):
    ratios = [[4.0, 1.0, 0.25], [1.6, 2.5, 1.0], [1.5, 1.5, 0.6], [3.0, 2.5, 1.5]]
    weights, mask, metrics = corrected(ratios, reject_by=level, bounds=(0.5, 2.0))
    assert mask.tolist() == [[bool(on) for on in row] for row in expected]
    assert weights.tolist() == expected
    lost = 12 - sum(map(sum, expected))
    assert metrics["rollout_rs_masked_fraction"] == pytest.approx(lost / 12)
    assert metrics["rollout_rs_seq_masked_fraction"] == pytest.approx(
        sum(0 in row for row in expected) / 4
    )


def test_the_geometric_mean_does_not_grow_with_the_length():
    # Ratios of 1.05 everywhere: 20 of them multiply to 2.65, their geometric mean stays 1.05.
    by_product = corrected([[1.05] * 20, [1.05] + [None] * 19], reject_by="sequence")
    assert by_product[1].any(-1).tolist() == [False, True]
    by_mean = corrected(
        [[1.05] * 20, [1.2] + [None] * 19], reject_by="geometric", bounds=(0.9, 1.1)
    )
    assert by_mean[1].any(-1).tolist() == [True, False]


def test_bounds_belong_to_the_range_they_enclose():
    streams = tensors([[0.5, 0.499, 2.0, 2.001]], rollout=0.0)
    found = rollout_correction(*streams, reject_by="token", bounds=(0.5, 2.0))
    assert kept(found).tolist() == [[True, False, True, False]]


def test_weights_and_rejection_together_keep_the_weight_of_what_is_kept():
    weights, mask, metrics = corrected(
        [[0.1, 1.5, 3.0, 9.0]], weigh_by="token", threshold=2.0, reject_by="token", bounds=(0.5, 4)
    )
    assert torch.allclose(weights, rows([0.0, 1.5, 2.0, 0.0]), atol=1e-12)
    assert mask.tolist() == [[False, True, True, False]]
    # The figures of the weights are of all tokens, rejected ones too.
    assert metrics["rollout_is_mean"] == pytest.approx((0.1 + 1.5 + 2 + 2) / 4)


def test_log_probs_that_are_no_numbers_are_not_taken_for_out_of_bounds():
    old, rollout, mask = tensors([[1.0, 1.0]])
    old[0, 1] = NAN
    found = rollout_correction(old, rollout, mask, weigh_by="token", reject_by="token")
    assert kept(found).all()
    assert found.weights[0, 1].isnan()


# --- how far apart


def test_the_mismatch_metrics_of_two_sequences_by_hand():
    old, rollout = rows([-1.0, -2.0], [-0.3, NAN]), rows([-0.5, -2.1], [-0.2, INF])
    mask = torch.tensor([[True, True], [True, False]])
    found = rollout_correction(old, rollout, mask)
    # d = rollout - old: (.5, -.1) and (.1): means .2 and .1 by sequence.
    expected = {
        "kl": 0.5 / 3,
        "k3_kl": (math.exp(-0.5) + math.exp(0.1) + math.exp(-0.1) + 0.5 - 3) / 3,
        "training_ppl": (math.exp(1.5) + math.exp(0.3)) / 2,
        "rollout_ppl": (math.exp(1.3) + math.exp(0.2)) / 2,
        "log_ppl_diff": 0.15,
        "log_ppl_abs_diff": 0.15,
        "log_ppl_diff_max": 0.2,
        "log_ppl_diff_min": 0.1,
        "ppl_ratio": (math.exp(0.2) + math.exp(0.1)) / 2,
        "chi2_token": (math.exp(-1.0) + math.exp(0.2) + math.exp(-0.2)) / 3 - 1,
        "chi2_seq": (math.exp(-0.8) + math.exp(-0.2)) / 2 - 1,
    }
    assert found.metrics == pytest.approx(
        {f"rollout_corr/{name}": value for name, value in expected.items()}, abs=1e-12
    )
    assert torch.equal(found.weights, mask.double())


def test_a_sequence_that_trains_nothing_is_in_no_mean():
    ratios = [[1.5, 0.8], [None, None]]
    options = {"weigh_by": "sequence", "reject_by": "sequence"}
    assert corrected(ratios, **options)[2] == pytest.approx(corrected(ratios[:1], **options)[2])


def test_a_batch_that_trains_nothing_has_no_figures():
    weights, mask, metrics = corrected([[None, None]], weigh_by="token", reject_by="token")
    assert (weights.tolist(), mask.any().item(), metrics) == ([[0.0, 0.0]], False, {})


def test_streams_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="differ in shape"):
        rollout_correction(rows([-1.0, -1.0]), rows([-1.0]), torch.ones(1, 2, dtype=torch.bool))


# --- in the loss


def reducer(mask, mode="token-mean"):
    num_tokens, num_sequences = count_tokens(mask)
    return functools.partial(
        aggregate,
        mode=mode,
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        num_prompts=1,  # all rows are siblings
        prompt_tokens=torch.full((len(mask),), num_tokens),
        max_length=8,
    )


def test_a_rejected_token_leaves_the_sum_and_stays_in_every_denominator():
    losses = rows([1.0, 2.0, 6.0], [4.0, NAN, NAN])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    kept = torch.tensor([[True, False, True], [True, False, False]])
    weights = rows([0.5, NAN, 1.0], [2.0, NAN, INF])
    # Weighted: .5, 0, 6 and 8.
    for mode, expected in {
        "token-mean": 14.5 / 4,
        "seq-mean-token-sum": 14.5 / 2,
        "seq-mean-token-sum-norm": 14.5 / 2 / 8,
        "seq-mean-token-mean": (6.5 / 3 + 8) / 2,
        "prompt-mean": 14.5 / 4,
    }.items():
        reduce = WeightedReduce(reducer(mask, mode), mask, weights)
        assert reduce(losses, kept).item() == pytest.approx(expected)
    unweighted = WeightedReduce(reducer(mask), mask)
    assert unweighted(losses, kept).item() == pytest.approx((1 + 6 + 4) / 4)


def objective(logprobs, old, rollout, advantages, ref, mask, *, mode="token-mean", **options):
    """Policy loss, KL and entropy terms with the correction, as the learner puts them together."""
    found = rollout_correction(old, rollout, mask, **options)
    plain = WeightedReduce(reducer(mask, mode), mask)
    policy = ppo_clip_loss(
        PolicyLossInputs(
            logprobs=logprobs, old_logprobs=old, advantages=advantages, mask=kept(found)
        ),
        reduce=WeightedReduce(reducer(mask, mode), mask, found.weights),
    )
    kl = kl_loss(logprobs, ref, kept(found), reduce=plain)
    entropy = entropy_loss(-logprobs, kept(found), reduce=plain)
    return policy.loss + 0.1 * kl.loss + 0.01 * entropy.loss


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_what_is_masked_or_rejected_has_exactly_no_gradient(mode):
    mask = torch.tensor([[False, True, True, True, False]])
    old = torch.where(mask, rows([0, -1.0, -2.0, -0.5, 0]), NAN)
    rollout = torch.where(mask, rows([0, -1.1, -0.1, -0.5, 0]), -INF)  # ratios 1.1, .15, 1
    logprobs = torch.where(mask, old + 0.01, INF).requires_grad_()
    loss = objective(
        logprobs,
        old,
        rollout,
        torch.where(mask, 1.0, NAN).double(),
        torch.where(mask, -1.0, -INF).double(),
        mask,
        mode=mode,
        weigh_by="token",
        reject_by="token",
    )
    loss.backward()
    assert math.isfinite(loss.item())
    assert logprobs.grad[0, [0, 2, 4]].tolist() == [0.0, 0.0, 0.0]
    assert (logprobs.grad[0, [1, 3]] != 0).all()


def test_no_gradient_flows_through_a_weight():
    # Nothing is truncated: were a weight differentiated, d/d logprob would be w (1 + ...).
    logprobs = rows([-1.0, -2.0]).requires_grad_()
    old, rollout = logprobs, rows([-1.3, -1.5])
    mask = torch.ones(1, 2, dtype=torch.bool)
    found = rollout_correction(old, rollout, mask, weigh_by="token")
    assert not found.weights.requires_grad
    output = ppo_clip_loss(
        PolicyLossInputs(logprobs=logprobs, old_logprobs=None, advantages=rows([2, 2]), mask=mask),
        reduce=WeightedReduce(reducer(mask), mask, found.weights),
    )
    output.loss.backward()
    # -A w / N at ratio 1.
    assert torch.allclose(logprobs.grad, rows([-math.exp(0.3), -math.exp(-0.5)]), atol=1e-12)


def test_the_clipped_ratio_and_the_weight_multiply():
    # Decoupled: ratio to the old policy 1.5, clipped to 1.2 for A = 1; weight 1.5 of the old one.
    mask = torch.ones(1, 1, dtype=torch.bool)
    old = rows([-1.0])
    found = rollout_correction(old, old - math.log(1.5), mask, weigh_by="token")
    output = ppo_clip_loss(
        PolicyLossInputs(
            logprobs=old + math.log(1.5), old_logprobs=old, advantages=rows([1.0]), mask=mask
        ),
        reduce=WeightedReduce(reducer(mask), mask, found.weights),
    )
    assert output.loss.item() == pytest.approx(-1.2 * 1.5)
    assert output.metrics["actor/pg_loss"].result() == pytest.approx(-1.2 * 1.5)
    assert output.metrics["actor/pg_clipfrac"].result() == 1.0


# --- properties

log_probs = st.floats(-30, -0.001)


@st.composite
def batches(draw):
    """Streams of a small batch with holes in its mask, in float64."""
    num_rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    size = num_rows * width

    def stream(values):
        found = draw(st.lists(values, min_size=size, max_size=size))
        return torch.tensor(found, dtype=torch.float64).view(num_rows, width)

    mask = stream(st.booleans()).bool()
    mask[0, 0] = True
    return stream(log_probs), stream(log_probs), mask


@settings(deadline=None, max_examples=60)
@given(batches(), st.sampled_from(["token", "sequence"]), st.floats(0.1, 50), st.booleans())
def test_weights_are_bounded_and_zero_just_where_nothing_trains(batch, level, threshold, rejects):
    old, rollout, mask = batch
    found = rollout_correction(
        old,
        rollout,
        mask,
        weigh_by=level,
        threshold=threshold,
        reject_by="token" if rejects else None,
        bounds=(0.5, 3.0),
    )
    low, high = math.log(0.5), math.log(3.0)
    in_bounds = mask & ((old - rollout) >= low) & ((old - rollout) <= high)
    assert torch.equal(found.weights > 0, in_bounds if rejects else mask)
    assert float(found.weights.max()) <= threshold
    assert 0 < found.metrics["rollout_corr/rollout_is_eff_sample_size"] <= 1 + 1e-9
    assert found.metrics["rollout_corr/k3_kl"] >= 0


@settings(deadline=None, max_examples=40)
@given(batches(), st.sampled_from(list(LossAggMode)), st.sampled_from(["token", "sequence"]))
def test_equal_policies_and_a_huge_bound_give_weight_one_and_the_uncorrected_gradient(
    batch, mode, level
):
    old, ref, mask = batch
    advantages = torch.linspace(-1, 1, mask.numel(), dtype=torch.float64).view(mask.shape)
    gradients = []
    for options in ({}, {"weigh_by": level, "threshold": 1e9, "reject_by": level}):
        logprobs = (old + 0.05).requires_grad_()
        objective(logprobs, old, old, advantages, ref, mask, mode=mode, **options).backward()
        gradients.append(logprobs.grad)
    assert torch.equal(gradients[0], gradients[1])
    found = rollout_correction(old, old, mask, weigh_by=level, threshold=1e9)
    assert torch.equal(found.weights, mask.double())
    assert found.metrics["rollout_corr/kl"] == 0


@settings(deadline=None, max_examples=40)
@given(batches(), st.sampled_from(["token", "sequence", "geometric"]))
def test_padding_and_order_change_no_weight(batch, level):
    old, rollout, mask = batch
    options = {
        "weigh_by": None if level == "geometric" else level,
        "reject_by": level,
        "normalize": True,
    }
    found = rollout_correction(old, rollout, mask, **options)
    pad = torch.full((len(old), 2), NAN, dtype=torch.float64)
    wider = [torch.cat([stream, pad], -1).flip(0) for stream in (old, rollout)]
    wide_mask = torch.cat([mask, torch.zeros_like(pad, dtype=torch.bool)], -1).flip(0)
    again = rollout_correction(*wider, wide_mask, **options)
    assert torch.equal(kept(again)[:, :-2].flip(0), kept(found))
    assert torch.allclose(again.weights[:, :-2].flip(0), found.weights, rtol=1e-12)
    assert again.metrics == pytest.approx(found.metrics, rel=1e-9, abs=1e-9)


def test_the_importance_weight_makes_the_gradient_that_of_the_learner():
    # Two outcomes, p_learner (.8, .2), p_generator (.5, .5), A = (1, -2): the mean over the
    # generator's samples of w A grad log p is the mean of A grad log p over the learner's own.
    learner, generator = rows([0.8, 0.2]).log(), rows([0.5, 0.5]).log()
    mask = torch.ones(1, 2, dtype=torch.bool)
    weights = rollout_correction(
        learner, generator, mask, weigh_by="token", threshold=100.0
    ).weights
    advantages = rows([1.0, -2.0])
    under_generator = (generator.exp() * weights * advantages).sum()
    assert under_generator.item() == pytest.approx(0.8 * 1 - 0.2 * 2)


# --- reported by users of the peers


@pytest.mark.data
def test_the_direction_and_the_cap_of_the_weight(bug_report):
    case = bug_report("loss-tis_cap_direction")
    given, right = case["input"], case["right"]
    old, rollout = rows(given["trainer_old_logp"]), rows(given["rollout_logp"])
    mask = torch.ones_like(old, dtype=torch.bool)
    found = rollout_correction(old, rollout, mask, weigh_by="token", threshold=given["cap"])
    assert found.weights[0].tolist() == pytest.approx(right["values"]["weights"], abs=right["tol"])
    raw = right["values"]["raw"]
    assert found.metrics["rollout_corr/rollout_is_raw_mean"] == pytest.approx(
        sum(raw) / len(raw), abs=right["tol"]
    )


@pytest.mark.data
def test_a_filtered_token_whose_ratio_overflows(bug_report):
    case = bug_report("loss-filtered_token_inf_times_zero")
    given, right = case["input"], case["right"]
    log_ratio = rows(given["log_ratio"])
    mask = torch.ones_like(log_ratio, dtype=torch.bool)
    found = rollout_correction(
        log_ratio, torch.zeros_like(log_ratio), mask, reject_by="token", bounds=given["keep_range"]
    )
    assert found.weights[0].tolist() == right["values"]["weights"]
    logprobs = log_ratio.clone().requires_grad_()
    output = ppo_clip_loss(
        PolicyLossInputs(
            logprobs=logprobs,
            old_logprobs=None,
            advantages=torch.full_like(log_ratio, given["A"]),
            mask=kept(found),
        ),
        reduce=WeightedReduce(reducer(mask), mask, found.weights),
    )
    output.loss.backward()
    expected = right["values"]["loss_over_3_valid_tokens"]
    assert output.loss.item() == pytest.approx(expected, abs=right["tol"])
    assert logprobs.grad[0, [0, 2]].tolist() == [0.0, 0.0]


def test_the_pooled_log_ratio_of_a_level():
    log_ratio = rows([0.5, -0.2, 9.0])
    mask = torch.tensor([[True, True, False]])
    assert torch.equal(pooled(log_ratio, mask, "token"), log_ratio)
    assert pooled(log_ratio, mask, "sequence")[0].tolist() == pytest.approx([0.3] * 3)
    assert pooled(log_ratio, mask, "geometric")[0].tolist() == pytest.approx([0.15] * 3)
