import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode, aggregate, count_tokens
from rlgym_llm_trainers.algorithms.losses.value import ExplainedVariance, value_loss
from rlgym_llm_trainers.algorithms.metrics import Metric, finalize, merge, merge_steps

NAN = float("nan")


def reducer(mask, mode="token-mean"):
    num_tokens, num_sequences = count_tokens(mask)
    return functools.partial(
        aggregate,
        mode=mode,
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        max_length=50,
        num_prompts=num_sequences,
        prompt_tokens=mask.sum(-1),
    )


def one_token(value, old, right, **options):
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    output = value_loss(
        values,
        torch.tensor([[old]]),
        torch.tensor([[right]]),
        mask,
        reduce=reducer(mask),
        **options,
    )
    output.loss.backward()
    return output.loss.item(), values.grad.item(), finalize(output.metrics)


@pytest.mark.parametrize(
    ("value", "old", "right", "loss", "gradient", "clipfrac"),
    [
        (2.0, 0.0, 1.0, 0.5, 1.0, 0.0),  # errors 1 and .25: the plain one is the larger
        (2.0, 0.0, 3.0, 3.125, 0.0, 1.0),  # errors 1 and 6.25: moved far enough already
        (0.25, 0.0, 1.0, 0.28125, -0.75, 0.0),  # within the clip
        (-2.0, 0.0, -3.0, 3.125, 0.0, 1.0),
    ],
)
def test_hand_computed_clipping(value, old, right, loss, gradient, clipfrac):
    found = one_token(value, old, right, clip=0.5)
    assert found[:2] == (loss, gradient)
    assert found[2] == {
        "critic/vf_loss": loss,
        "critic/vf_clipfrac": clipfrac,
        "critic/vpred_mean": value,
    }


def test_without_a_clip_it_is_half_the_squared_error():
    loss, gradient, metrics = one_token(2.0, 0.0, 3.0, clip=None)
    assert (loss, gradient, metrics["critic/vf_clipfrac"]) == (0.5, -1.0, 0.0)
    with pytest.raises(ValueError, match="clip must be above 0"):
        one_token(2.0, 0.0, 3.0, clip=0.0)


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_what_is_masked_may_be_nan(mode):
    mask = torch.tensor([[False, True, True], [False, False, False]])
    clean = [torch.full((2, 3), value) for value in (1.0, 0.5, 2.0)]
    bad = torch.tensor([[NAN, 0.0, 0.0], [math.inf, NAN, -math.inf]])
    found = []
    for streams in (clean, [torch.where(mask, stream, bad) for stream in clean]):
        values = streams[0].clone().requires_grad_()
        output = value_loss(values, *streams[1:], mask, reduce=reducer(mask, mode))
        output.loss.backward()
        assert values.grad[~mask].tolist() == [0.0] * 4
        found.append((output.loss.item(), values.grad.tolist(), finalize(output.metrics)))
    assert found[0] == found[1]


def explained(values, returns):
    found = torch.tensor([values], dtype=torch.float64)
    right = torch.tensor([returns], dtype=torch.float64)
    return ExplainedVariance.of(found, right, torch.ones_like(found, dtype=torch.bool))


def test_hand_computed_explained_variance():
    # Var(R) of 0, 2, 4 is 4; R - V is 0, 1, 0 with variance 1/3.
    assert explained([0.0, 1.0, 4.0], [0.0, 2.0, 4.0]).result() == pytest.approx(1 - 1 / 12)
    assert explained([0.0, 2.0, 4.0], [0.0, 2.0, 4.0]).result() == 1.0
    assert explained([2.0, 2.0, 2.0], [0.0, 2.0, 4.0]).result() == 0.0  # it knows the mean
    assert explained([4.0, 2.0, 0.0], [0.0, 2.0, 4.0]).result() == -3.0  # worse than that
    # A constant error costs nothing: it is variance that is explained.
    assert explained([9.0, 11.0, 13.0], [0.0, 2.0, 4.0]).result() == 1.0


@pytest.mark.parametrize(
    "returns",
    [[1.0] * 4, [1.0, 1.0 + 1e-7, 1.0, 1.0], [1e4, 1e4 + 1e-3, 1e4, 1e4], [3.0], []],
)
def test_returns_that_do_not_vary_leave_it_undefined(returns):
    assert math.isnan(explained([0.5 * i for i in range(len(returns))], returns).result())


def test_masked_tokens_do_not_count():
    mask = torch.tensor([[True, False, True, True]])
    values = torch.tensor([[0.0, NAN, 1.0, 4.0]])
    returns = torch.tensor([[0.0, math.inf, 2.0, 4.0]])
    found = ExplainedVariance.of(values, returns, mask)
    assert found.result() == pytest.approx(1 - 1 / 12)
    assert found.count == 3
    with pytest.raises(ValueError, match="finite"):
        ExplainedVariance.of(values, returns, torch.ones_like(mask))


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=12),
    st.integers(1, 5),
)
def test_parts_merge_to_the_whole(pairs, size):
    values, returns = (list(column) for column in zip(*pairs, strict=True))
    parts = [
        {"ev": explained(values[i : i + size], returns[i : i + size])}
        for i in range(0, len(pairs), size)
    ]
    whole = explained(values, returns).result()
    for merged in (merge(parts), merge_steps(parts)):
        assert finalize(merged)["ev"] == pytest.approx(whole, rel=1e-9, abs=1e-9, nan_ok=True)


def test_a_mean_of_the_parts_would_be_another_number():
    parts = [explained([0.0, 0.1], [0.0, 0.2]), explained([10.0, 10.1], [10.0, 10.2])]
    assert [part.result() for part in parts] == pytest.approx([0.75, 0.75])
    assert parts[0].merge(parts[1]).result() > 0.9999


def test_it_merges_with_nothing_else():
    with pytest.raises(ValueError, match="explained_variance metric does not merge with a mean"):
        explained([1.0], [1.0]).merge(Metric.mean(1.0, 1))
    with pytest.raises(ValueError, match="mean metric does not merge"):
        Metric.mean(1.0, 1).merge(explained([1.0], [1.0]))


def test_returns_too_large_to_square_leave_it_undefined():
    returns = torch.full((1, 2), 1e200, dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert math.isnan(ExplainedVariance.of(torch.zeros(1, 2), returns, mask).result())
