import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.logprobs import hidden_to_logprobs, token_logprobs


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_temperature_divides_the_logits():
    logits = torch.tensor([[[2.0, 1.0, 0.0]] * 2])
    ids = torch.tensor([[1, 0]])
    # log softmax([2, 1, 0])[0] = -.4076; of [3.33, 1.67, 0]: -.2026, never -.4076 / .6 = -.6793.
    assert token_logprobs(logits, ids)[0].tolist() == pytest.approx([0.0, -0.407606], abs=1e-6)
    assert token_logprobs(logits, ids, 0.6)[0, 1].item() == pytest.approx(-0.202573, abs=1e-6)


def test_position_t_reads_the_logits_before_it():
    logits, ids = noise(2, 4, 7), torch.tensor([[1, 2, 3, 4], [6, 5, 0, 1]])
    found = token_logprobs(logits, ids)
    for b in range(2):
        assert found[b, 0] == 0
        for t in range(1, 4):
            expected = logits[b, t - 1].log_softmax(-1)[ids[b, t]]
            assert found[b, t].item() == pytest.approx(expected.item(), abs=1e-12)


def test_masked_positions_are_neither_computed_nor_differentiated():
    logits = noise(1, 4, 5)
    logits[0, 2] = float("nan")
    logits[0, 3] = float("inf")
    logits.requires_grad_()
    mask = torch.tensor([[False, True, True, False]])
    found = token_logprobs(logits, torch.tensor([[0, 1, 2, 3]]), mask=mask)
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert found[~mask].tolist() == [0.0, 0.0]
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().sum(-1)[0].gt(0).tolist() == [True, True, False, False]


def test_tokens_cut_by_top_p_leave_the_kept_ones_normalised():
    logits = torch.tensor([[[0.5, 0.3, 0.15, 0.05]] * 2]).log()
    logits[..., 2:] = -torch.inf
    logits.requires_grad_()
    found = token_logprobs(logits, torch.tensor([[0, 0]]))
    found.sum().backward()
    assert found[0, 1].item() == pytest.approx(math.log(0.5 / 0.8), abs=1e-6)
    assert torch.isfinite(logits.grad).all()


def test_arithmetic_is_float32_at_least():
    logits = noise(1, 3, 4)
    ids = torch.tensor([[0, 1, 2]])
    assert token_logprobs(logits.bfloat16(), ids).dtype == torch.float32
    assert token_logprobs(logits, ids).dtype == torch.float64


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_no_log_probs_without_a_temperature(temperature):
    with pytest.raises(ValueError, match="temperature must be above 0"):
        token_logprobs(torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.long), temperature)


def entropy_of(logits, temperature=1.0):
    targets = torch.zeros(1, dtype=torch.long)
    found = hidden_to_logprobs(logits[None], None, targets, temperature, with_entropy=True)
    return found[1][0]


def test_hand_computed_entropies():
    assert entropy_of(torch.zeros(4)).item() == pytest.approx(math.log(4))
    # Half and half of the two kept; the cut ones add nothing, to the gradient neither.
    logits = torch.tensor([1.0, 1.0, -torch.inf, -torch.inf], requires_grad=True)
    entropy = entropy_of(logits)
    entropy.backward()
    assert entropy.item() == pytest.approx(math.log(2))
    assert torch.isfinite(logits.grad).all()
    # p = softmax([2, 0] / 2) = [.7311, .2689]
    p = 1 / (1 + math.exp(-1))
    expected = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert entropy_of(torch.tensor([2.0, 0.0]), 2.0).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 9), st.integers(1, 12), st.booleans(), st.sampled_from([0.6, 1.0, 2.0]))
def test_the_chunked_head_equals_the_plain_one(rows, chunk_size, with_entropy, temperature):
    hidden, weight, targets = noise(rows, 3), noise(6, 3, seed=1), torch.arange(rows) % 6
    coefficients = noise(2, rows, seed=2)
    results = []
    for is_chunked in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if is_chunked:
            logprobs, entropy = hidden_to_logprobs(
                h, w, targets, temperature, chunk_size=chunk_size, with_entropy=with_entropy
            )
        else:
            logits = h @ w.T
            every = (logits / temperature).log_softmax(-1)
            logprobs = every[torch.arange(rows), targets]
            entropy = -(every.exp() * every).sum(-1) if with_entropy else None
        assert (entropy is not None) == with_entropy
        loss = (coefficients[0] * logprobs).sum()
        if entropy is not None:
            loss = loss + (coefficients[1] * entropy).sum()
        loss.backward()
        results.append((logprobs.detach(), loss.detach(), h.grad, w.grad))
    for chunked, plain in zip(*results, strict=True):
        assert torch.allclose(chunked, plain, rtol=0, atol=1e-12)


def test_the_chunked_head_never_holds_more_than_a_chunk_of_logits():
    saved = []

    def pack(tensor):
        if tensor.shape[-1] == 50:
            saved.append(tensor.shape)
        return tensor

    hidden = noise(64, 3).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logprobs, _ = hidden_to_logprobs(
            hidden, noise(50, 3, seed=1), torch.zeros(64, dtype=torch.long), chunk_size=8
        )
    assert saved == [(8, 50)]
    logprobs.sum().backward()
    assert torch.isfinite(hidden.grad).all()


def test_the_chunked_head_without_gradients_and_bad_chunks():
    with torch.no_grad():
        logprobs, entropy = hidden_to_logprobs(
            noise(5, 3), noise(6, 3, seed=1), torch.zeros(5, dtype=torch.long), with_entropy=True
        )
    assert logprobs.shape == entropy.shape == (5,)
    assert not logprobs.requires_grad
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        hidden_to_logprobs(noise(1, 3), noise(6, 3), torch.zeros(1).long(), chunk_size=0)
