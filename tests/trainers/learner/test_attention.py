"""Packed attention against scores written out token by token."""

from __future__ import annotations

import pytest
import torch
from rlgym_llm_trainers.learner.attention import packed_attention
from rlgym_llm_trainers.learner.packing import layout_of
from torch import nn

ROWS = [[7, 8, 1, 2, 3], [5, 6, 7, 4, 4], [7, 8, 9, 4, 0], [7, 8, 2, 2, 5], [5, 6, 7, 1, 1]]
READ = torch.tensor(
    [
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [0, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 0],
    ],
    dtype=torch.bool,
)
"""Two prompts that two or three rows share; one row reads one state less."""


def heads(num, layout, *, seed, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    shape = (1, layout.num_tokens, num, 8)
    return torch.randn(*shape, dtype=dtype, generator=draw).transpose(1, 2).requires_grad_()


def seen_by(layout):
    """For each position the positions that it sees, itself last."""
    starts = [0]
    for run in layout.runs:
        starts.append(starts[-1] + run.num_tokens)
    for start, run in zip(starts, layout.runs, strict=False):
        for row in range(run.count):
            prompt = []
            if run.prompt_run is not None:
                first = starts[run.prompt_run] + run.prompt_rows[row] * run.prompt_length
                prompt = list(range(first, first + run.prompt_length))
            own = start + row * run.length
            for t in range(run.length):
                yield [*prompt, *range(own, own + t + 1)]


def by_hand(query, key, value, layout, *, scaling, window=None):
    """One softmax after another."""
    group = query.shape[1] // key.shape[1]
    rows = []
    for position, seen in enumerate(seen_by(layout)):
        seen = seen if window is None else seen[-window:]
        out = []
        for head in range(query.shape[1]):
            keys, values = key[0, head // group, seen], value[0, head // group, seen]
            out.append((keys @ query[0, head, position] * scaling).softmax(0) @ values)
        rows.append(torch.stack(out))
    return torch.stack(rows)[None]


@pytest.mark.parametrize("window", [None, 1, 2, 3, 50])
@pytest.mark.parametrize("share_prompts", [True, False])
@pytest.mark.parametrize("num_key_heads", [4, 2, 1])
def test_it_equals_the_sums_by_hand_and_so_do_its_gradients(window, share_prompts, num_key_heads):
    layout = layout_of(torch.tensor(ROWS), READ, share_prompts=share_prompts)
    inputs = [
        heads(4, layout, seed=0),
        heads(num_key_heads, layout, seed=1),
        heads(num_key_heads, layout, seed=2),
    ]
    found, weights = packed_attention(
        nn.Module(), *inputs, None, layout=layout, scaling=0.3, sliding_window=window
    )
    assert weights is None
    expected = by_hand(*inputs, layout, scaling=0.3, window=window)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator())
    gradients = torch.autograd.grad(found, inputs, upstream)
    for gradient, right in zip(
        gradients, torch.autograd.grad(expected, inputs, upstream), strict=True
    ):
        assert torch.allclose(gradient, right, rtol=0, atol=1e-12)


def test_without_a_layout_it_is_sdpa():
    layout = layout_of(torch.tensor(ROWS), READ)
    query, key, value = (heads(2, layout, seed=seed) for seed in range(3))
    found, _ = packed_attention(nn.Module(), query, key, value, None, is_causal=True)
    right = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.equal(found, right.transpose(1, 2))


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ({"softcap": 50.0}, "softcap"),
        ({"s_aux": torch.zeros(2)}, "s_aux"),
        ({"dropout": 0.1}, "dropout"),
        ({"is_causal": False}, "not causal"),
    ],
)
def test_what_it_would_compute_wrongly_it_refuses(setting, name):
    layout = layout_of(torch.tensor(ROWS), READ)
    states = [heads(2, layout, seed=seed) for seed in range(3)]
    with pytest.raises(NotImplementedError, match=name):
        packed_attention(nn.Module(), *states, None, layout=layout, **setting)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("share_prompts", [True, False])
def test_the_variable_length_kernel_equals_the_sums_by_hand(window, share_prompts):
    layout = layout_of(torch.tensor(ROWS).cuda(), READ.cuda(), share_prompts=share_prompts)
    states = [heads(n, layout, seed=n + i) for i, n in enumerate((4, 2, 2))]
    rounded = [state.detach().bfloat16().cuda().requires_grad_() for state in states]
    exact = [state.detach().double().requires_grad_() for state in rounded]
    found, _ = packed_attention(
        nn.Module(), *rounded, None, layout=layout, scaling=0.3, sliding_window=window
    )
    expected = by_hand(*exact, layout, scaling=0.3, window=window)
    assert torch.allclose(found.double(), expected, rtol=0.02, atol=0.02)
    found.float().sum().backward()
    expected.sum().backward()
    for low, right in zip(rounded, exact, strict=True):
        assert torch.allclose(low.grad.double(), right.grad, rtol=0.05, atol=0.05)
