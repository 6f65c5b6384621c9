import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.aggregate import (
    LossAggMode,
    aggregate,
    count_tokens,
    masked,
    tokens_by_prompt,
)

VALUES = torch.tensor([[1.0, 2.0, 3.0], [5.0, 7.0, 11.0], [9.0, 9.0, 9.0]])
MASK = torch.tensor([[True, True, True], [False, True, False], [False, False, False]])


def bound(mode, mask, groups=None, rows=slice(None), **options):
    """The reduce of some rows of a step whose mask and prompts are given."""
    num_tokens, num_sequences = count_tokens(mask)
    groups = groups or ["a", "a", "b", "c", "b", "c"][: len(mask)]
    of_prompt = tokens_by_prompt(mask.sum(-1).tolist(), groups)
    return functools.partial(
        aggregate,
        mode=mode,
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        num_prompts=sum(count > 0 for count in of_prompt.values()),
        prompt_tokens=torch.tensor([of_prompt[group] for group in groups])[rows],
        max_length=100,
        **options,
    )


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", (6 + 7) / 4),
        ("seq-mean-token-sum", (6 + 7) / 2),
        ("seq-mean-token-sum-norm", (6 + 7) / 2 / 100),
        ("seq-mean-token-mean", (2 + 7) / 2),
        ("prompt-mean", (6 + 7) / 4),  # both trained sequences answer one prompt
    ],
)
def test_hand_computed_modes(mode, expected):
    # The third sequence has no trained token: it leaves numerator and denominator.
    assert bound(mode, MASK)(VALUES, MASK).item() == pytest.approx(expected)


def test_prompt_mean_weighs_prompts_alike_and_the_tokens_within_one():
    # Prompt a: (1 + 2 + 3) / 3 and the third sequence's 9s, 6 tokens; prompt b: 7.
    mask = torch.tensor([[True] * 3, [False, True, False], [True] * 3])
    loss = bound("prompt-mean", mask, ["a", "b", "a"])(VALUES, mask)
    assert loss.item() == pytest.approx(((6 + 27) / 6 + 7) / 2)
    # One sequence a prompt is the mean over sequences, one prompt the mean over tokens.
    for groups, mode in ((["a", "b", "c"], "seq-mean-token-mean"), (["a"] * 3, "token-mean")):
        alike = bound("prompt-mean", mask, groups)(VALUES, mask)
        assert alike.item() == pytest.approx(bound(mode, mask)(VALUES, mask).item())


def test_counts():
    assert count_tokens(MASK) == (4, 2)
    assert count_tokens(MASK.long()) == (4, 2)


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_what_is_masked_may_be_nan_and_costs_no_gradient(mode):
    values = torch.where(MASK, VALUES, torch.tensor(float("nan")))
    values[2, 1] = float("inf")
    values.requires_grad_()
    loss = bound(mode, MASK)(values, MASK)
    loss.backward()
    assert loss.item() == bound(mode, MASK)(VALUES, MASK).item()
    assert torch.equal(values.grad != 0, MASK)
    assert torch.isfinite(values.grad).all()


def test_masking_before_a_function_keeps_its_derivative_finite():
    # exp(800) = inf: its derivative times a zero gradient would be NaN.
    x = torch.tensor([800.0, 0.0], requires_grad=True)
    masked(x, torch.tensor([False, True])).exp().sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_a_step_without_tokens_has_loss_zero_on_the_graph():
    values = torch.ones(2, 3, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    for mode in LossAggMode:
        loss = bound(mode, mask)(values, mask)
        loss.backward()
        assert loss.item() == 0.0
    assert values.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("mode", list(LossAggMode))
def test_two_ranks_add_up_to_the_whole_in_every_mode(mode):
    groups = ["a", "b", "a"]
    mask = torch.tensor([[True] * 3, [False, True, False], [True, False, True]])
    whole = bound(mode, mask, groups)(VALUES, mask)
    shares = [bound(mode, mask, groups, rows)(VALUES[rows], mask[rows]) for rows in ([0], [1, 2])]
    assert float(sum(shares)) == pytest.approx(whole.item())


def test_the_sum_over_ranks_is_the_global_mean():
    mask = torch.ones(1, 4, dtype=torch.bool)
    shares = [
        aggregate(values, mask[:, : values.shape[1]], num_tokens=5, num_sequences=2)
        for values in (torch.full((1, 4), 2.0), torch.full((1, 1), 12.0))
    ]
    # (4 * 2 + 12) / 5 = 4; the mean of the ranks' own means would be 7.
    assert float(sum(shares)) == pytest.approx(4.0)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="batch-mean"):
        aggregate(VALUES, MASK, "batch-mean", num_tokens=4, num_sequences=2)
    with pytest.raises(ValueError, match="prompt-mean needs num_prompts and prompt_tokens"):
        aggregate(VALUES, MASK, "prompt-mean", num_tokens=4, num_sequences=2)
    with pytest.raises(ValueError, match="seq-mean-token-sum-norm needs max_length"):
        aggregate(VALUES, MASK, "seq-mean-token-sum-norm", num_tokens=4, num_sequences=2)


@st.composite
def batches(draw):
    rows, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    flags = st.lists(st.booleans(), min_size=rows * width, max_size=rows * width)
    mask = torch.tensor(draw(flags)).reshape(rows, width)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    values = torch.randn(rows, width, dtype=torch.float64, generator=generator)
    order = draw(st.permutations(range(rows)))
    micro_size = draw(st.integers(1, rows))
    return values, mask, torch.tensor(order), micro_size


@settings(deadline=None)
@given(batches(), st.sampled_from(list(LossAggMode)))
def test_loss_and_gradient_ignore_the_split_and_the_order(batch, mode):
    values, mask, order, micro_size = batch

    whole = values.clone().requires_grad_()
    loss = bound(mode, mask)(whole, mask)
    loss.backward()

    parts = values.clone().requires_grad_()
    total = 0.0
    for rows in order.split(micro_size):
        # A part is padded to its own longest row only, and further padding changes nothing.
        widened = torch.nn.functional.pad(parts[rows], (0, 2), value=float("nan"))
        reduce = bound(mode, mask, rows=rows)
        share = reduce(widened, torch.nn.functional.pad(mask[rows], (0, 2)))
        share.backward()
        total += share.item()
    assert total == pytest.approx(loss.item(), abs=1e-12)
    assert torch.allclose(parts.grad, whole.grad, rtol=0, atol=1e-14)
