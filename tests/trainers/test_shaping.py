import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.metrics import finalize
from rlgym_llm_trainers.shaping import kl_metrics, penalized_rewards, token_rewards

MASK = torch.tensor([[False, True, False, True], [False, True, True, False]])
KL = torch.tensor([[9.0, 0.1, 5.0, 0.2], [9.0, 0.4, 0.6, float("nan")]])


def test_outcome_lands_on_the_last_sampled_token():
    found = token_rewards(torch.tensor([1.0, -2.0]), MASK)
    assert found.tolist() == [[0, 0, 0, 1], [0, 0, -2, 0]]


def test_kl_stays_on_its_own_tokens():
    found = token_rewards(torch.tensor([1.0, 2.0]), MASK, kl=KL, kl_coef=0.5)
    # 1 - .5 * .2 = .9 and 2 - .5 * .6 = 1.7 at the ends; what is masked is exactly 0.
    expected = torch.tensor([[0.0, -0.05, 0.0, 0.9], [0.0, -0.2, 1.7, 0.0]])
    assert torch.allclose(found, expected)
    assert found[~MASK].tolist() == [0.0] * 4


def test_reward_assembly_of_a_group():
    # env [8, 0, 8] + format [1.5, 1.5, 0] - 0.01 * length [100, 50, 200] = [8.5, 1.0, 6.0],
    # minus beta .1 * (kl sums [.3, 1.0, .4]) = [8.47, .9, 5.96].
    env, form, length = [8.0, 0.0, 8.0], [1.5, 1.5, 0.0], [100, 50, 200]
    scores = [e + f - 0.01 * n for e, f, n in zip(env, form, length, strict=True)]
    mask = torch.cat([MASK, MASK[:1]])
    kl = torch.cat([KL, 2 * KL[:1]])
    kl[2, 1] = 0.0
    found = penalized_rewards(scores, kl, mask, kl_coef=0.1)
    assert found == pytest.approx([8.47, 0.9, 5.96], abs=1e-6)


def test_unscored_stays_unscored():
    # 3 - (.4 + .6)
    unscored, scored = penalized_rewards([None, 3.0], KL, MASK, kl_coef=1.0)
    assert unscored is None
    assert scored == pytest.approx(2.0)
    with pytest.raises(ValueError, match="1 rewards but 2 sequences"):
        penalized_rewards([1.0], KL, MASK, kl_coef=1.0)


def test_a_row_without_sampled_tokens_is_refused():
    with pytest.raises(ValueError, match="nowhere to put its reward"):
        token_rewards(torch.tensor([1.0]), torch.zeros(1, 3, dtype=torch.bool))


def test_rewards_are_constants_of_the_loss():
    kl = torch.ones(2, 4, requires_grad=True)
    assert not token_rewards(torch.tensor([1.0, 2.0]), MASK, kl=kl, kl_coef=1.0).requires_grad


def test_kl_metrics_are_over_sampled_tokens():
    numbers = finalize(kl_metrics(KL, MASK, kl_coef=0.5))
    assert numbers["actor/reward_kl_penalty"] == pytest.approx((0.1 + 0.2 + 0.4 + 0.6) / 4)
    assert numbers["actor/reward_kl_penalty_coeff"] == 0.5


@given(st.data())
def test_a_row_sums_to_its_sequence_reward(data):
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    draw_row = st.lists(st.booleans(), min_size=width, max_size=width).filter(any)
    mask = torch.tensor([data.draw(draw_row) for _ in range(rows)])
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))
    kl = torch.randn(rows, width, dtype=torch.float64, generator=generator)
    outcomes = torch.randn(rows, dtype=torch.float64, generator=generator)
    beta = data.draw(st.floats(0, 2))
    sums = token_rewards(outcomes, mask, kl=kl, kl_coef=beta).sum(-1)
    expected = penalized_rewards(outcomes.tolist(), kl, mask, kl_coef=beta)
    assert sums.tolist() == pytest.approx(expected, abs=1e-12)
    assert token_rewards(outcomes, mask).sum(-1).tolist() == outcomes.tolist()
