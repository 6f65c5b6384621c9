import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.kl import KlKind, is_clamped, kl_penalty

logprob = st.floats(-50, 0, width=32)


def values(logprobs, ref_logprobs, kind):
    return kl_penalty(torch.tensor(logprobs), torch.tensor(ref_logprobs), kind).tolist()


def test_hand_computed_estimators():
    # d = ref - cur = +0.5 and -0.6.
    cur, ref = [-1.2, -0.3], [-0.7, -0.9]
    k3 = [math.exp(0.5) - 0.5 - 1, math.exp(-0.6) + 0.6 - 1]  # .148721, .148812
    for kind in ("k1", "kl"):
        assert values(cur, ref, kind) == pytest.approx([-0.5, 0.6], abs=1e-6)
    assert values(cur, ref, "abs") == pytest.approx([0.5, 0.6], abs=1e-6)
    for kind in ("k2", "mse"):
        assert values(cur, ref, kind) == pytest.approx([0.125, 0.18], abs=1e-6)
    for kind in ("k3", "low_var_kl"):
        assert values(cur, ref, kind) == pytest.approx(k3, abs=1e-6)


@pytest.mark.parametrize("kind", ["k3", "low_var_kl"])
def test_straight_through_has_the_value_of_k3_and_the_gradient_of_k2(kind):
    # Gaps of .5, -.6, 3 (beyond verl's clamp of 10) and 120 (beyond the clamp of 20).
    cur = torch.tensor([-1.2, -0.3, -4.0, -121.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-0.7, -0.9, -1.0, -1.0], dtype=torch.float64)
    straight = kl_penalty(cur, ref, f"{kind}+")
    assert straight.tolist() == kl_penalty(cur, ref, kind).tolist()
    straight.sum().backward()
    assert cur.grad.tolist() == pytest.approx([-0.5, 0.6, -3.0, -120.0])  # cur - ref


def test_low_var_kl_alone_clamps_its_output():
    # d = 3: e^3 - 4 = 16.0855, beyond verl's 10.
    assert values([-4.0], [-1.0], "k3") == pytest.approx([16.085537], abs=1e-4)
    assert values([-4.0], [-1.0], "low_var_kl") == [10.0]


def test_huge_gaps_stay_finite_in_value_and_gradient_and_are_counted():
    cur = torch.tensor([-121.0, -1.0], requires_grad=True)
    ref = torch.tensor([-1.0, -1.0])
    k3 = kl_penalty(cur, ref, "k3")
    k3.sum().backward()
    assert torch.isfinite(k3).all()
    assert cur.grad.tolist() == [0.0, 0.0]
    assert is_clamped(cur, ref).tolist() == [True, False]


def test_half_precision_is_cast_before_the_subtraction():
    cur = torch.tensor([-8.0], dtype=torch.bfloat16)
    ref = torch.tensor([-8.0625], dtype=torch.bfloat16)
    assert kl_penalty(cur, ref, "k1").dtype == torch.float32
    assert kl_penalty(cur, ref, "k1").item() == 0.0625
    assert kl_penalty(cur.double(), ref.double(), "k3").dtype == torch.float64


def test_gradient_flows_through_the_policy_alone():
    cur = torch.tensor([-1.0], requires_grad=True)
    ref = torch.tensor([-2.0], requires_grad=True)
    for kind in KlKind:
        assert kl_penalty(cur, ref, kind).requires_grad
        (grad,) = torch.autograd.grad(kl_penalty(cur, ref, kind).sum(), [cur])
        assert torch.isfinite(grad).all()
    kl_penalty(cur, ref, "k3").sum().backward()
    assert ref.grad is None
    # d/dlogp of exp(ref - logp) + logp at ref - logp = -1: 1 - 1/e.
    assert cur.grad.item() == pytest.approx(1 - math.exp(-1), abs=1e-6)


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="k4"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k4")


@given(logprob, logprob)
def test_k3_is_never_negative_and_zero_only_at_agreement(cur, ref):
    (value,) = values([cur], [ref], "k3")
    assert value >= 0
    assert values([cur], [cur], "k3") == [0.0]
    if abs(cur - ref) > 1e-2:
        assert value > 0


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_the_expectation_of_k1_and_k3_under_the_policy_is_the_kl(logits):
    cur = torch.tensor(logits[:3], dtype=torch.float64).log_softmax(0)
    ref = torch.tensor(logits[3:], dtype=torch.float64).log_softmax(0)
    exact = float((cur.exp() * (cur - ref)).sum())
    for kind in ("k1", "k3"):
        expectation = float((cur.exp() * kl_penalty(cur, ref, kind)).sum())
        assert expectation == pytest.approx(exact, abs=1e-12)


def test_the_flipped_sign_estimates_something_else():
    cur = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64).log_softmax(0)
    ref = torch.tensor([0.0, 0.3, 0.2], dtype=torch.float64).log_softmax(0)
    exact = float((cur.exp() * (cur - ref)).sum())
    right, flipped = kl_penalty(cur, ref, "k3"), kl_penalty(ref, cur, "k3")
    assert float((cur.exp() * right).sum()) == pytest.approx(exact, abs=1e-12)
    assert abs(float((cur.exp() * flipped).sum()) - exact) > 0.01


@pytest.mark.parametrize(
    ("kind", "is_right"),
    [("k1", False), ("k2", True), ("k3", False), ("k3+", True), ("low_var_kl+", True)],
)
def test_which_loss_has_the_gradient_of_the_kl(kind, is_right):
    logits = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.0, 0.3, 0.2], dtype=torch.float64).log_softmax(0)
    cur = logits.log_softmax(0)
    (exact,) = torch.autograd.grad((cur.exp() * (cur - ref)).sum(), logits, retain_graph=True)
    # On samples of the policy itself, which a loss does not differentiate.
    expectation = (cur.detach().exp() * kl_penalty(cur, ref, kind)).sum()
    (found,) = torch.autograd.grad(expectation, logits)
    assert torch.allclose(found, exact, rtol=0, atol=1e-12) == is_right
