import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode, aggregate, count_tokens
from rlgym_llm_trainers.algorithms.kl import kl_penalty
from rlgym_llm_trainers.algorithms.logprobs import token_logprobs
from rlgym_llm_trainers.algorithms.losses import (
    PolicyLossInputs,
    entropy_loss,
    kl_loss,
    ppo_clip_loss,
)
from rlgym_llm_trainers.algorithms.metrics import finalize, merge

NAN = float("nan")


def reducer(mask, mode="token-mean", rows=slice(None)):
    """The reduce of some rows of a step, each the response to a prompt of its own."""
    num_tokens, num_sequences = count_tokens(mask)
    return functools.partial(
        aggregate,
        mode=mode,
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        num_prompts=num_sequences,
        prompt_tokens=mask.sum(-1)[rows],
        max_length=50,
    )


def ppo_at(ratios, advantages, **options):
    """The loss of one row whose tokens have the given ratios, and its numbers."""
    logprobs = torch.tensor([ratios], dtype=torch.float64).log()
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    inputs = PolicyLossInputs(
        logprobs=logprobs,
        old_logprobs=torch.zeros_like(logprobs),
        advantages=torch.tensor([advantages], dtype=torch.float64),
        mask=mask,
    )
    output = ppo_clip_loss(inputs, reduce=reducer(mask), **options)
    return output.loss.item(), finalize(output.metrics)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.6, 2.0, -2.4),  # unclipped -3.2, clipped -1.2 * 2: the objective takes 2.4
        (0.5, 2.0, -1.0),  # a bad move on a good token is never clipped
        (0.5, -2.0, 1.6),  # the lower bound: .8 * 2
        (1.6, -2.0, 3.2),  # a bad move on a bad token counts in full
        (10.0, -1.0, 3.0),  # until the dual clip bounds it
        (1.0, 5.0, -5.0),
    ],
)
def test_hand_computed_clipping(ratio, advantage, expected):
    loss, metrics = ppo_at([ratio], [advantage])
    assert loss == pytest.approx(expected)
    assert metrics["actor/pg_loss"] == loss
    assert metrics["actor/ppo_kl"] == pytest.approx(-math.log(ratio))


def test_a_log_ratio_of_eight_is_bounded_and_one_beyond_the_clamp_stays_finite():
    # exp(8) = 2981: clipped to 1.2, or 3 for a negative advantage.
    assert ppo_at([math.exp(8)], [1.0])[0] == pytest.approx(-1.2)
    assert ppo_at([math.exp(8)], [-1.0])[0] == pytest.approx(3.0)
    assert ppo_at([math.exp(8)], [-1.0], clip_c=None)[0] == pytest.approx(math.exp(8))
    assert ppo_at([math.exp(300)], [-1.0], clip_c=None)[0] == pytest.approx(math.exp(20))


def test_clip_fractions_are_effective_and_by_side():
    loss, metrics = ppo_at([0.7, 1.3, 0.7, 1.3, 9.0], [1, 1, -1, -1, -1])
    # -.7, -1.2, .8, 1.3 and 3 (dual): sum 3.2 over 5 tokens.
    assert loss == pytest.approx(3.2 / 5)
    assert metrics["actor/pg_clipfrac"] == pytest.approx(0.4)
    assert metrics["actor/clip_ratio/high_mean"] == pytest.approx(0.2)
    assert metrics["actor/clip_ratio/low_mean"] == pytest.approx(0.2)
    assert metrics["actor/pg_clipfrac_lower"] == pytest.approx(0.2)


def test_the_gradient_at_ratio_one_is_minus_the_advantage_though_the_loss_is_zero():
    logprobs = torch.tensor([[-0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    inputs = PolicyLossInputs(
        logprobs=logprobs, old_logprobs=None, advantages=torch.tensor([[1.0, -1.0]]), mask=mask
    )
    output = ppo_clip_loss(inputs, reduce=reducer(mask))
    output.loss.backward()
    assert output.loss.item() == 0.0
    assert logprobs.grad.tolist() == [[-0.5, 0.5]]
    assert finalize(output.metrics)["actor/ppo_kl"] == 0.0


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_nan_and_inf_under_the_mask_give_exactly_no_value_and_no_gradient(mode):
    mask = torch.tensor([[False, True, True, False]])
    clean = {
        "logprobs": torch.tensor([[-1.0, -0.5, -2.0, -1.0]]),
        "old_logprobs": torch.tensor([[-1.0, -0.6, -1.9, -1.0]]),
        "ref_logprobs": torch.tensor([[-1.0, -0.7, -1.0, -1.0]]),
        "advantages": torch.tensor([[0.0, 1.0, -1.0, 0.0]]),
    }
    dirty = {
        name: torch.where(mask, value, torch.tensor([[NAN, 0.0, 0.0, bad]]))
        for (name, value), bad in zip(
            clean.items(), (-math.inf, NAN, math.inf, math.inf), strict=True
        )
    }
    found = []
    for streams in (clean, dirty):
        logprobs = streams["logprobs"].clone().requires_grad_()
        reduce = reducer(mask, mode)
        policy = ppo_clip_loss(
            PolicyLossInputs(
                logprobs=logprobs,
                old_logprobs=streams["old_logprobs"],
                advantages=streams["advantages"],
                mask=mask,
            ),
            reduce=reduce,
        )
        kl = kl_loss(
            logprobs,
            streams["ref_logprobs"],
            mask,
            reduce=reduce,
            old_logprobs=streams["old_logprobs"],
        )
        entropy = entropy_loss(-logprobs, mask, reduce=reduce)
        (policy.loss + 0.1 * kl.loss + 0.01 * entropy.loss).backward()
        metrics = finalize(merge([policy.metrics, kl.metrics, entropy.metrics]))
        found.append((policy.loss.item(), kl.loss.item(), logprobs.grad, metrics))
    assert found[0][:2] == found[1][:2]
    assert torch.equal(found[0][2], found[1][2])
    assert found[1][2][~mask].tolist() == [0.0, 0.0]
    assert found[0][3] == found[1][3]


def test_kl_loss_reports_the_token_mean_without_masked_rows():
    logprobs = torch.tensor([[-1.2, -0.3], [-5.0, -5.0]])
    ref = torch.tensor([[-0.7, -0.9], [-1.0, -1.0]])
    mask = torch.tensor([[True, True], [False, False]])
    output = kl_loss(logprobs, ref, mask, reduce=reducer(mask), kind="k2")
    # (.125 + .18) / 2
    assert output.loss.item() == pytest.approx(0.1525)
    metrics = finalize(output.metrics)
    assert metrics == pytest.approx(
        {"actor/kl_loss": 0.1525, "actor/kl": 0.1525, "actor/kl_clampfrac": 0.0}, abs=1e-6
    )


def test_clamped_kl_tokens_are_counted():
    mask = torch.ones(1, 2, dtype=torch.bool)
    output = kl_loss(
        torch.tensor([[-121.0, -1.0]]), torch.tensor([[-1.0, -1.0]]), mask, reduce=reducer(mask)
    )
    assert output.metrics["actor/kl_clampfrac"].value == 1
    assert finalize(output.metrics)["actor/kl_clampfrac"] == 0.5


@pytest.mark.parametrize("kind", ["k3", "k3+"])
def test_weighted_by_the_ratio_k3_has_the_value_and_gradient_of_the_kl(kind):
    old = torch.tensor([0.2, 0.2, -0.4], dtype=torch.float64).log_softmax(0)
    ref = torch.tensor([0.0, 0.3, 0.2], dtype=torch.float64).log_softmax(0)
    logits = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.bool)

    def expectation(values, mask):
        return (old.exp() * values[0]).sum()  # over samples of the old policy

    def value_and_gradient(value):
        return value.item(), torch.autograd.grad(value, logits, retain_graph=True)[0]

    cur = logits.log_softmax(0)
    exact, exact_gradient = value_and_gradient((cur.exp() * (cur - ref)).sum())
    options = {"mask": mask, "reduce": expectation, "kind": kind}
    weighted = kl_loss(cur[None], ref[None], old_logprobs=old[None], **options)
    value, gradient = value_and_gradient(weighted.loss)
    assert value == pytest.approx(exact, abs=1e-12)
    assert torch.allclose(gradient, exact_gradient, rtol=0, atol=1e-12)
    plain_value, plain_gradient = value_and_gradient(kl_loss(cur[None], ref[None], **options).loss)
    assert abs(plain_value - exact) > 1e-3
    assert not torch.allclose(plain_gradient, exact_gradient, rtol=0, atol=1e-3)


def test_entropy_is_subtracted_and_reported_as_it_is():
    entropy, mask = torch.tensor([[1.0, 3.0, NAN]]), torch.tensor([[True, True, False]])
    output = entropy_loss(entropy, mask, reduce=reducer(mask))
    assert output.loss.item() == -2.0
    assert finalize(output.metrics) == {"actor/entropy": 2.0}


def test_shapes_that_mix_whole_sequences_with_responses_are_refused():
    with pytest.raises(ValueError, match=r"advantages has shape \(1, 3\), logprobs \(1, 5\)"):
        PolicyLossInputs(
            logprobs=torch.zeros(1, 5),
            old_logprobs=None,
            advantages=torch.zeros(1, 3),
            mask=torch.ones(1, 5),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [({"clip_c": 1.0}, "clip_c"), ({"clip_low": 1.0}, "clip_low"), ({"clip_high": -0.1}, "high")],
)
def test_bounds_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ppo_at([1.0], [1.0], **options)


@given(
    # The peers' two products of a subnormal advantage round to the same, and nothing seems clipped.
    st.lists(
        st.tuples(st.floats(-6, 6), st.floats(-3, 3, allow_subnormal=False), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.05, 0.5),
    st.floats(0.05, 0.5),
)
def test_equals_the_peers_formula_in_numpy(tokens, low, high):
    d, adv, on = (np.array(column) for column in zip(*tokens, strict=True))
    mask = torch.tensor(on)[None]
    inputs = PolicyLossInputs(
        logprobs=torch.tensor(d)[None],
        old_logprobs=torch.zeros(1, len(d), dtype=torch.float64),
        advantages=torch.tensor(adv)[None],
        mask=mask,
    )
    output = ppo_clip_loss(inputs, reduce=reducer(mask), clip_low=low, clip_high=high)
    # As verl writes it: max of the two, then min with the third where A < 0.
    ratio = np.exp(d)
    first, second = -adv * ratio, -adv * np.clip(ratio, 1 - low, 1 + high)
    worse = np.maximum(first, second)
    both = np.where(adv < 0, np.minimum(-adv * 3.0, worse), worse)
    count = max(on.sum(), 1)
    assert output.loss.item() == pytest.approx((both * on).sum() / count, abs=1e-9)
    numbers = finalize(output.metrics)
    if on.any():
        assert numbers["actor/pg_clipfrac"] == pytest.approx(((second > first) & on).sum() / count)
        dual = (worse > -adv * 3.0) & (adv < 0) & on
        assert numbers["actor/pg_clipfrac_lower"] == pytest.approx(dual.sum() / count)
        assert numbers["actor/ppo_kl"] == pytest.approx((-d * on).sum() / count, abs=1e-9)


def _objective(logits, streams, rows, width, reduce):
    """The whole objective on some rows cut or padded to ``width``, from logits on."""
    picked = {name: stream[rows, :width] for name, stream in streams.items()}
    logprobs = token_logprobs(logits[rows, :width], picked["ids"], 0.7, mask=picked["mask"])
    entropy = torch.zeros_like(logprobs)
    every = (logits[rows, : width - 1] / 0.7).log_softmax(-1)
    entropy[:, 1:] = -(every.exp() * every).sum(-1)
    policy = ppo_clip_loss(
        PolicyLossInputs(
            logprobs=logprobs,
            old_logprobs=picked["old"],
            advantages=picked["adv"],
            mask=picked["mask"],
        ),
        reduce=reduce,
    )
    kl = kl_loss(logprobs, picked["ref"], picked["mask"], reduce=reduce)
    bonus = entropy_loss(entropy, picked["mask"], reduce=reduce)
    loss = policy.loss + 0.3 * kl.loss + 0.1 * bonus.loss
    return loss, merge([policy.metrics, kl.metrics, bonus.metrics])


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(list(LossAggMode)),
    st.lists(st.integers(2, 6), min_size=1, max_size=6),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_the_objective_ignores_micro_batches_order_and_padding(mode, lengths, micro, random):
    generator = torch.Generator().manual_seed(random.randrange(2**16))
    rows, width, vocab = len(lengths), max(lengths), 5

    def noise(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    positions = torch.arange(width)
    streams = {
        "ids": torch.randint(vocab, (rows, width), generator=generator),
        "mask": (positions >= 1) & (positions < torch.tensor(lengths)[:, None]),
        "old": noise(rows, width) - 1.5,
        "ref": noise(rows, width) - 1.5,
        "adv": noise(rows, width),
    }
    step = streams["mask"]
    whole = noise(rows, width, vocab).requires_grad_()
    loss, bag = _objective(whole, streams, torch.arange(rows), width, reducer(step, mode))
    loss.backward()

    parts = whole.detach().clone().requires_grad_()
    order = list(range(rows))
    random.shuffle(order)
    total, bags = 0.0, []
    for chunk in torch.tensor(order).split(micro):
        longest = max(lengths[i] for i in chunk.tolist())
        reduce = reducer(step, mode, chunk)
        share, metrics = _objective(parts, streams, chunk, longest, reduce)
        share.backward()
        total += share.item()
        bags.append(metrics)
    assert total == pytest.approx(loss.item(), abs=1e-12)
    assert torch.allclose(parts.grad, whole.grad, rtol=0, atol=1e-13)
    assert finalize(merge(bags)) == pytest.approx(finalize(bag), abs=1e-12)


def test_k3_as_a_loss_pulls_towards_the_reference():
    logits = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.0, 0.3, 0.2], dtype=torch.float64).log_softmax(0)
    cur = logits.log_softmax(0)
    (cur.detach().exp() * kl_penalty(cur, ref, "k3")).sum().backward()
    with torch.no_grad():
        moved = (logits - 0.5 * logits.grad).log_softmax(0)
        before = (cur.exp() * (cur - ref)).sum()
        after = (moved.exp() * (moved - ref)).sum()
    assert after < before
