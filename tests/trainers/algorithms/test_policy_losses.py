"""Every registered policy loss: hand-computed values, and what must hold for all of them."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.aggregate import (
    LossAggMode,
    aggregate,
    count_tokens,
    tokens_by_prompt,
)
from rlgym_llm_trainers.algorithms.losses import PolicyLossInputs, WeightedReduce
from rlgym_llm_trainers.algorithms.losses.cispo import cispo_loss
from rlgym_llm_trainers.algorithms.losses.dppo_tv import dppo_tv_loss
from rlgym_llm_trainers.algorithms.losses.gmpo import gmpo_loss
from rlgym_llm_trainers.algorithms.losses.gpg import gpg_loss
from rlgym_llm_trainers.algorithms.losses.gspo import gspo_loss
from rlgym_llm_trainers.algorithms.losses.ppo_clip import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.sapo import sapo_loss
from rlgym_llm_trainers.algorithms.metrics import finalize, merge

from rlgym_llm.specs import Kind

LOSSES = {spec.name: spec.load() for spec in rlgym_register(Kind.POLICY_LOSS)}
MODES = list(LossAggMode)
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
every_mode = pytest.mark.parametrize("mode", MODES)


def step_reduce(mask, mode="seq-mean-token-mean", groups=None):
    """(rows, weights) -> reduce of those rows, with the denominators of the whole mask."""
    num_tokens, num_sequences = count_tokens(mask)
    groups = groups or [str(i) for i in range(len(mask))]
    of_prompt = tokens_by_prompt(mask.sum(-1).tolist(), groups)
    rows_of = torch.tensor([of_prompt[group] for group in groups])

    def of(rows=slice(None), weights=None, width=None):
        reduce = functools.partial(
            aggregate,
            mode=mode,
            num_tokens=num_tokens,
            num_sequences=num_sequences,
            num_prompts=sum(count > 0 for count in of_prompt.values()),
            prompt_tokens=rows_of[rows],
            max_length=50,
        )
        if weights is None:
            return reduce
        return WeightedReduce(reduce, mask[rows, :width], weights[rows, :width])

    return of


def one_row(loss, log_ratios, advantages, *, old=-1.0, **options):
    """Loss, gradient by the log-probs and metrics of one sequence, its mean over tokens."""
    d = torch.tensor([log_ratios], dtype=torch.float64)
    logprobs = (old + d).requires_grad_()
    mask = torch.ones_like(d, dtype=torch.bool)
    inputs = PolicyLossInputs(
        logprobs=logprobs,
        old_logprobs=torch.full_like(d, old),
        advantages=torch.tensor([advantages], dtype=torch.float64),
        mask=mask,
    )
    output = loss(inputs, reduce=step_reduce(mask)(), **options)
    output.loss.backward()
    return output.loss.item(), logprobs.grad[0].tolist(), finalize(output.metrics)


def test_gspo_takes_the_geometric_mean_of_the_ratios():
    loss, gradient, metrics = one_row(gspo_loss, [0.1, 0.3], [1.0, 1.0], clip_high=0.5)
    s = math.exp(0.2)  # 1.2214
    assert loss == pytest.approx(-s)
    assert gradient == pytest.approx([-s / 2, -s / 2])
    assert metrics == pytest.approx(
        {
            "actor/pg_loss": -s,
            "actor/ppo_kl": -0.2,
            "actor/pg_clipfrac": 0.0,
            "actor/clip_ratio/high_mean": 0.0,
            "actor/clip_ratio/low_mean": 0.0,
        }
    )
    loss, gradient, metrics = one_row(gspo_loss, [0.1, 0.3], [1.0, 1.0])
    assert loss == pytest.approx(-1.0004)
    assert gradient == [0.0, 0.0]
    assert metrics["actor/pg_clipfrac"] == metrics["actor/clip_ratio/high_mean"] == 1.0
    loss, gradient, metrics = one_row(gspo_loss, [-0.1, -0.3], [-1.0, -1.0])
    assert loss == pytest.approx(1 - 3e-4)
    assert gradient == [0.0, 0.0]
    assert metrics["actor/clip_ratio/low_mean"] == 1.0


def test_gspo_lets_advantages_differ_within_a_sequence():
    _, gradient, _ = one_row(gspo_loss, [0.1, 0.3], [1.0, -2.0], clip_high=0.5)
    s = math.exp(0.2)
    assert gradient == pytest.approx([-s / 2, 2 * s / 2])


def test_gmpo_clips_log_ratios_by_the_sign_of_the_advantage():
    loss, gradient, metrics = one_row(gmpo_loss, [0.1, 0.7], [1.0, 1.0])
    s = math.exp((0.1 + 0.4) / 2)  # 1.2840
    assert loss == pytest.approx(-s)
    assert gradient == pytest.approx([-s / 2, 0.0])
    assert metrics["actor/pg_clipfrac"] == metrics["actor/clip_ratio/high_mean"] == 0.5
    assert metrics["actor/ppo_kl"] == pytest.approx(-0.4)
    # Where A < 0 the lower bound alone counts.
    loss, gradient, metrics = one_row(gmpo_loss, [-0.5, 0.9], [-1.0, -1.0])
    assert loss == pytest.approx(s)
    assert gradient == pytest.approx([0.0, s / 2])
    assert metrics["actor/clip_ratio/low_mean"] == 0.5


def test_cispo_clips_the_weight_and_keeps_the_gradient():
    ratios, advantages = [3.0, 0.5, 1.1], [2.0, 1.0, -1.0]
    loss, gradient, metrics = one_row(cispo_loss, [math.log(r) for r in ratios], advantages)
    # Weights 1.2, .5 (no lower bound) and 1.1.
    assert gradient == pytest.approx([-1.2 * 2 / 3, -0.5 / 3, 1.1 / 3])
    assert metrics["actor/pg_clipfrac"] == pytest.approx(1 / 3)
    logprobs = [-1 + math.log(r) for r in ratios]
    assert loss == pytest.approx(-(2.4 * logprobs[0] + 0.5 * logprobs[1] - 1.1 * logprobs[2]) / 3)
    _, gradient, _ = one_row(cispo_loss, [math.log(0.5)], [1.0], clip_low=0.2)
    assert gradient == pytest.approx([-0.8])


def test_sapo_fades_smoothly():
    assert one_row(sapo_loss, [0.0], [1.0])[:2] == (-2.0, [-1.0])
    loss, gradient, _ = one_row(sapo_loss, [math.log(2)], [1.0])
    # sigmoid(1) = .7310586, its derivative .1966119.
    assert loss == pytest.approx(-4 * 0.7310585786)
    assert gradient == pytest.approx([-4 * 0.1966119332 * 2])
    loss, gradient, _ = one_row(sapo_loss, [math.log(2)], [-1.0])
    # tau 1.05: sigmoid(1.05) = .7407749, its derivative .1920275.
    assert loss == pytest.approx(4 / 1.05 * 0.7407748992)
    assert gradient == pytest.approx([4 * 0.1920274478 * 2])


def test_gpg_is_the_plain_policy_gradient():
    loss, gradient, metrics = one_row(gpg_loss, [0.5, -1.0], [2.0, -3.0])
    # Log-probs -.5 and -2: 2 * .5 = 1 and -3 * 2 = -6.
    assert loss == pytest.approx((1.0 - 6.0) / 2)
    assert gradient == pytest.approx([-1.0, 1.5])
    assert set(metrics) == {"actor/pg_loss", "actor/ppo_kl"}


def test_dppo_bounds_the_probability_and_not_the_ratio():
    # p - q = .8 - .5 is above .2; with A < 0 the same token trains.
    half, more = math.log(0.5), math.log(0.8 / 0.5)
    _, gradient, metrics = one_row(dppo_tv_loss, [more], [1.0], old=half)
    assert gradient == [0.0]
    assert metrics["actor/clip_ratio/high_mean"] == 1.0
    assert one_row(dppo_tv_loss, [more], [-1.0], old=half)[1] == pytest.approx([1.6])
    _, gradient, metrics = one_row(dppo_tv_loss, [math.log(0.2 / 0.5)], [-1.0], old=half)
    assert gradient == [0.0]
    assert metrics["actor/clip_ratio/low_mean"] == 1.0
    for advantage, trains in (
        (1.0, True),
        (-1.0, False),
    ):  # p - q is .1 and -.1, the bounds .15, .05
        d = [math.log((0.5 + 0.1 * advantage) / 0.5)]
        found = one_row(dppo_tv_loss, d, [advantage], old=half, clip_low=0.05, clip_high=0.15)
        assert (found[1] != [0.0]) == trains
    # A rare token that became five times as likely moved by .04 only; the weight ends at 20.
    rare = math.log(0.01)
    assert one_row(dppo_tv_loss, [math.log(5)], [1.0], old=rare)[1] == pytest.approx([-5.0])
    rarer = math.log(0.001)
    assert one_row(dppo_tv_loss, [math.log(50)], [1.0], old=rarer)[1] == pytest.approx([-20.0])


@pytest.mark.parametrize("loss", [ppo_clip_loss, gspo_loss, gmpo_loss, sapo_loss, gpg_loss])
@every_mode
def test_the_gradient_is_that_of_the_value(loss, mode):
    # The others hold a weight fixed, so that their value has another derivative.
    draw = torch.Generator().manual_seed(1)
    logprobs = torch.randn(3, 5, dtype=torch.float64, generator=draw).requires_grad_()
    mask = torch.tensor([[0, 1, 1, 1, 1], [0, 0, 1, 0, 1], [0, 1, 1, 1, 0]]).bool()
    old = logprobs.detach() + 0.3 * torch.randn(3, 5, dtype=torch.float64, generator=draw)
    advantages = torch.tensor([[1.5], [-1.0], [-0.5]], dtype=torch.float64).expand(3, 5)
    options = {"clip_low": 0.05, "clip_high": 0.1} if loss in (ppo_clip_loss, gspo_loss) else {}

    def value(current):
        inputs = PolicyLossInputs(
            logprobs=current, old_logprobs=old, advantages=advantages, mask=mask
        )
        return loss(inputs, reduce=step_reduce(mask, mode, ["a", "a", "b"])(), **options).loss

    assert torch.autograd.gradcheck(value, logprobs)


@every_loss
@every_mode
def test_what_is_masked_may_be_nan_and_gets_exactly_no_gradient(loss, mode):
    mask = torch.tensor([[False, True, True, False], [False] * 4])
    clean = {
        "logprobs": torch.tensor([[-1.0, -0.5, -2.0, -1.0], [-1.0] * 4]),
        "old_logprobs": torch.tensor([[-1.0, -0.6, -1.9, -1.0], [-1.0] * 4]),
        "advantages": torch.tensor([[0.0, 1.0, -1.0, 0.0], [2.0] * 4]),
        "weights": torch.tensor([[1.0, 0.5, 2.0, 1.0], [1.0] * 4]),
    }
    bad = torch.tensor([[math.nan, 0, 0, -math.inf], [math.inf, math.nan, -800.0, 800.0]])
    found = []
    for streams in (clean, {k: torch.where(mask, v, bad) for k, v in clean.items()}):
        for old in (streams["old_logprobs"], None):
            logprobs = streams["logprobs"].clone().requires_grad_()
            inputs = PolicyLossInputs(
                logprobs=logprobs, old_logprobs=old, advantages=streams["advantages"], mask=mask
            )
            reduce = step_reduce(mask, mode, ["a", "a"])(weights=streams["weights"])
            output = loss(inputs, reduce=reduce)
            output.loss.backward()
            assert logprobs.grad[~mask].tolist() == [0.0] * 6
            assert logprobs.grad[mask].isfinite().all()
            found.append((output.loss.item(), logprobs.grad.tolist(), finalize(output.metrics)))
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert all(map(math.isfinite, found[0][2].values()))


@every_loss
@pytest.mark.parametrize("gap", [120.0, -120.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_huge_log_ratios_stay_finite_in_float32(loss, gap, advantage):
    logprobs = torch.tensor([[min(gap, 0.0), min(gap, 0.0)]]).requires_grad_()
    mask = torch.ones(1, 2, dtype=torch.bool)
    inputs = PolicyLossInputs(
        logprobs=logprobs,
        old_logprobs=logprobs.detach() - gap,
        advantages=torch.full((1, 2), advantage),
        mask=mask,
    )
    output = loss(inputs, reduce=step_reduce(mask)())
    output.loss.backward()
    assert output.loss.isfinite()
    assert logprobs.grad.isfinite().all()
    assert finalize(output.metrics)["actor/ppo_kl"] in (-gap, -math.copysign(20.0, gap))


@every_loss
@every_mode
def test_on_policy_every_loss_has_the_gradient_of_the_plain_policy_gradient(loss, mode):
    draw = torch.Generator().manual_seed(2)
    values = torch.randn(4, 6, dtype=torch.float64, generator=draw)
    mask = torch.rand(4, 6, generator=draw) < 0.7
    advantages = torch.tensor([[1.0], [-2.0], [0.5], [0.0]]).double().expand(4, 6)
    weights = torch.tensor([[0.5], [2.0], [1.0], [1.0]]).double().expand(4, 6)
    gradients = []
    for one in (loss, gpg_loss):
        logprobs = values.clone().requires_grad_()
        inputs = PolicyLossInputs(
            logprobs=logprobs, old_logprobs=None, advantages=advantages, mask=mask
        )
        reduce = step_reduce(mask, mode, ["a", "a", "b", "b"])(weights=weights)
        one(inputs, reduce=reduce).loss.backward()
        gradients.append(logprobs.grad)
    assert gradients[0].abs().sum() > 0
    assert torch.allclose(*gradients, rtol=0, atol=1e-15)
    assert gradients[0][3].tolist() == [0.0] * 6


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(MODES),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.integers(1, 6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_neither_the_split_nor_the_ranks_change_loss_or_gradient(
    name, mode, lengths, micro, is_weighted, random
):
    loss, rows, width = LOSSES[name], len(lengths), max(lengths)
    draw = torch.Generator().manual_seed(random.randrange(2**16))

    def noise(scale=1.0):
        return scale * torch.randn(rows, width, dtype=torch.float64, generator=draw)

    mask = (torch.arange(width) >= 1) & (torch.arange(width) < torch.tensor(lengths)[:, None])
    groups = [random.choice("ab") for _ in range(rows)]
    current, old, advantages = noise(), noise(), noise()
    weights = noise().abs() if is_weighted else None
    if is_weighted:  # rejected tokens leave the loss and stay in the denominators
        kept = mask & (torch.rand(rows, width, generator=draw) < 0.7)
        weights = torch.where(kept, weights, 0.0)
    else:
        kept = mask

    def share(logprobs, chosen, width):
        inputs = PolicyLossInputs(
            logprobs=logprobs[chosen, :width],
            old_logprobs=old[chosen, :width],
            advantages=advantages[chosen, :width],
            mask=kept[chosen, :width],
        )
        reduce = step_reduce(mask, mode, groups)(chosen, weights, width)
        return loss(inputs, reduce=reduce)

    whole = current.clone().requires_grad_()
    output = share(whole, torch.arange(rows), width)
    output.loss.backward()

    order = list(range(rows))
    random.shuffle(order)
    for world_size in (1, 2):
        parts = current.clone().requires_grad_()
        total, bags = 0.0, []
        for rank in range(world_size):
            mine = torch.tensor(order[rank::world_size], dtype=torch.long)
            for chosen in mine.split(micro) if len(mine) else ():
                longest = max(lengths[i] for i in chosen.tolist())
                part = share(parts, chosen, longest)
                part.loss.backward()
                total += part.loss.item()
                bags.append(part.metrics)
        assert total == pytest.approx(output.loss.item(), abs=1e-12)
        assert torch.allclose(parts.grad, whole.grad, rtol=0, atol=1e-13)
        merged = finalize(merge(bags))
        expected = finalize(output.metrics)
        assert merged == pytest.approx(expected, abs=1e-12, nan_ok=True)


def peers_gspo(d, logp, adv, low, high):
    s = np.exp(d.mean()) * np.ones_like(d)
    return np.maximum(-adv * s, -adv * np.clip(s, 1 - low, 1 + high))


def peers_gmpo(d, logp, adv, low, high):
    sign = np.sign(adv)
    smaller = sign * np.minimum(sign * d, sign * np.clip(d, -low, high))
    return np.full_like(d, -adv.mean() * np.exp(smaller.mean()))


def peers_cispo(d, logp, adv, low, high):
    return -np.clip(np.exp(d), 1 - low, 1 + high) * adv * logp


def peers_dppo(d, logp, adv, low, high):
    moved = np.exp(logp) - np.exp(logp - d)
    valid = np.where(adv > 0, moved <= high, moved >= -low)
    return -adv * np.minimum(np.exp(d), 20.0) * logp * valid


def peers_sapo(d, logp, adv):
    tau = np.where(adv > 0, 1.0, 1.05)
    return -adv * 4 / tau / (1 + np.exp(-tau * (np.exp(d) - 1)))


@pytest.mark.parametrize(
    ("loss", "peers", "is_clipped"),
    [
        (gspo_loss, peers_gspo, True),
        (gmpo_loss, peers_gmpo, True),
        (cispo_loss, peers_cispo, True),
        (dppo_tv_loss, peers_dppo, True),
        (sapo_loss, peers_sapo, False),
    ],
)
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(-6, -0.01)), min_size=1, max_size=8),
    st.floats(-3, 3, allow_subnormal=False),
    st.floats(0.05, 0.5),
    st.floats(0.05, 0.5),
)
def test_the_value_is_that_of_the_peers_formula_in_numpy(
    loss, peers, is_clipped, tokens, advantage, low, high
):
    d, old = (np.array(column) for column in zip(*tokens, strict=True))
    logp = old + d
    mask = torch.ones(1, len(d), dtype=torch.bool)
    inputs = PolicyLossInputs(
        logprobs=torch.tensor(logp)[None],
        old_logprobs=torch.tensor(old)[None],
        advantages=torch.full((1, len(d)), advantage, dtype=torch.float64),
        mask=mask,
    )
    options = {"clip_low": low, "clip_high": high} if is_clipped else {}
    found = loss(inputs, reduce=step_reduce(mask)(), **options).loss.item()
    bounds = (low, high) if is_clipped else ()
    expected = peers(logp - old, logp, np.full_like(d, advantage), *bounds).mean()
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (gspo_loss, {"clip_low": 1.0}, "clip_low 1.0"),
        (gmpo_loss, {"clip_low": -0.1}, "clip_low -0.1"),
        (cispo_loss, {"clip_high": -0.1}, "clip_high -0.1"),
        (sapo_loss, {"tau_neg": 0.0}, "tau_neg 0.0"),
        (dppo_tv_loss, {"max_ratio": 0.0}, "max_ratio"),
    ],
)
def test_options_that_make_no_sense_are_refused(loss, options, message):
    with pytest.raises(ValueError, match=message):
        one_row(loss, [0.0], [1.0], **options)


def test_a_batch_of_whole_sequences_trains_its_response_alone():
    """8 sequences of 512 ids whose last 128 are the response, one reward each."""
    mask = torch.zeros(8, 512, dtype=torch.bool)
    mask[:, 384:] = True
    mask[0, 500:] = False  # one response ends early
    rewards = torch.arange(8, dtype=torch.float64)
    logprobs = torch.full((8, 512), -1.0, dtype=torch.float64, requires_grad=True)
    inputs = PolicyLossInputs(
        logprobs=logprobs,
        old_logprobs=None,
        advantages=rewards[:, None].expand(8, 512),
        mask=mask,
    )
    ppo_clip_loss(inputs, reduce=step_reduce(mask, "token-mean")()).loss.backward()
    count = 7 * 128 + 116
    assert logprobs.grad[~mask].tolist() == [0.0] * (8 * 512 - count)
    for row in range(8):
        assert logprobs.grad[row, 384:500].tolist() == pytest.approx([-row / count] * 116)
