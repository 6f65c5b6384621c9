import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.dynamic_sampling import SamplingAccount, carries_signal


def test_signal_is_a_difference_of_values():
    assert not carries_signal([0.3] * 8)
    assert carries_signal([0.3] * 7 + [0.4])
    assert carries_signal([1e9, 1e9 + 1e-6])  # a float32 would not see it


def test_unscored_siblings_say_nothing():
    assert not carries_signal([1.0, None, 1.0])
    assert not carries_signal([1.0, None])
    assert not carries_signal([None, None])
    assert carries_signal([1.0, None, 0.0])


def test_the_account_draws_by_what_was_kept():
    account = SamplingAccount(wanted=8)
    assert (account.num_missing, account.next_draw) == (8, 8)
    account = account.after(num_sampled=8, num_kept=0)
    assert account.next_draw == 8
    account = account.after(num_sampled=8, num_kept=3)
    # 5 missing at 3 of 16: 26.7.
    assert (account.num_missing, account.next_draw) == (5, 27)
    account = account.after(num_sampled=27, num_kept=6)
    assert (account.num_missing, account.next_draw, account.num_rounds) == (0, 0, 3)


@given(st.integers(1, 100), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5))
def test_the_next_draw_covers_what_is_missing(wanted, rounds):
    account = SamplingAccount(wanted=wanted)
    for kept, lost in rounds:
        account = account.after(num_sampled=kept + lost, num_kept=kept)
    assert account.num_sampled == sum(kept + lost for kept, lost in rounds)
    assert account.next_draw >= account.num_missing
    assert (account.next_draw == 0) == (account.num_kept >= wanted)


def test_more_kept_than_sampled_is_refused():
    with pytest.raises(ValueError, match="3 of 2 prompts cannot be kept"):
        SamplingAccount(wanted=1).after(num_sampled=2, num_kept=3)
