import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.groups import dr_grpo, gpg, grpo, maxrl, opo, rloo
from rlgym_llm_trainers.algorithms.metrics import finalize

from rlgym_llm.errors import UserError

rewards_of_a_group = st.lists(
    st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=16
)


def found_in(rewards, group_ids, estimate=grpo, **options):
    return estimate(AdvantageInputs.of_rewards(rewards, group_ids), **options)


def one_group(rewards, estimate=grpo, **options):
    """The advantages of siblings, of one token each."""
    return found_in(rewards, ["g"] * len(rewards), estimate, **options).advantages[:, 0]


def std_of(result):
    """The std of the only group."""
    return finalize(result.metrics)["group_reward_std"]


def test_hand_computed_groups():
    # mean 50, deviations +-50, unbiased std sqrt(4 * 2500 / 3) = 57.735: +-0.866.
    assert one_group([0, 100, 0, 100]) == pytest.approx([-0.866025, 0.866025] * 2, abs=1e-5)
    # mean 1/4, std 1/2: (1 - .25) / .5 = 1.5 and -.5.
    assert one_group([1, 0, 0, 0]) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_without_the_std():
    expected = [1.5, -0.5, -0.5, -0.5]
    assert one_group([3, 1, 1, 1], norm_adv_by_std_in_grpo=False).tolist() == expected
    assert one_group([3, 1, 1, 1], dr_grpo).tolist() == expected


def test_a_shift_and_a_factor_change_nothing():
    base = one_group([0, 0.25, 0.5, 1])
    assert one_group([10, 10.25, 10.5, 11]) == pytest.approx(base, abs=1e-9)
    assert one_group([0, 2.5, 5, 10]) == pytest.approx(base, abs=1e-5)  # up to eps


def test_a_spread_of_noise_is_blown_up_and_its_std_shows_it():
    # Deviations -.01 and +.01 over a std of .00816: 1.22, as large as a real signal's.
    noise = found_in([0.61, 0.60, 0.62, 0.61], ["g"] * 4)
    signal = found_in([0.95, 0.10, 0.78, -0.20], ["g"] * 4)
    assert noise.advantages[:, 0] == pytest.approx([0, -1.2246, 1.2246, 0], abs=1e-3)
    assert np.abs(signal.advantages).max() < 1.25
    assert std_of(noise) == pytest.approx(0.00816497, abs=1e-7)
    assert std_of(signal) == pytest.approx(0.547, abs=1e-3)


def test_leave_one_out():
    # 3 - (1 + 1 + 1) / 3 = 2 and 1 - (3 + 1 + 1) / 3 = -2/3.
    assert one_group([3, 1, 1, 1], rloo) == pytest.approx([2, -2 / 3, -2 / 3, -2 / 3])
    assert one_group([1, 0], rloo).tolist() == [1.0, -1.0]


def test_longer_responses_weigh_more_in_the_baseline_of_opo():
    mask = np.array([[0, 1, 0, 0, 0], [0, 1, 1, 0, 1]], dtype=bool)
    rewards = np.array([[9.0, 1, 9, 9, 9], [9.0, 0, 0, 9, 0]])
    inputs = AdvantageInputs(
        token_rewards=rewards, mask=mask, group_ids=("g", "g"), is_scored=np.array([True, True])
    )
    # (1 * 1 + 3 * 0) / 4 = .25.
    assert opo(inputs).advantages.tolist() == [[0, 0.75, 0, 0, 0], [0, -0.25, -0.25, 0, -0.25]]


def test_maxrl_divides_by_the_mean():
    assert one_group([1, 0, 0, 0], maxrl) == pytest.approx([3, -1, -1, -1], abs=1e-4)
    assert one_group([1, 1, 1, 0], maxrl) == pytest.approx([1 / 3] * 3 + [-1], abs=1e-5)
    assert one_group([0, 0, 0], maxrl).tolist() == [0.0] * 3
    with pytest.raises(UserError, match=r"maxrl divides .* a reward is -0\.5; give"):
        one_group([1, -0.5], maxrl)


def test_gpg_makes_up_for_the_groups_that_carry_no_signal():
    found = found_in([1, 0, 1, 1, 0, 0], list("ppqqrr"), gpg)
    # 6 rollouts, 2 of them in a group that differs: 3 * (.5, -.5).
    assert found.advantages[:, 0].tolist() == [1.5, -1.5, 0, 0, 0, 0]
    assert found_in([1, 1], ["g", "g"], gpg).advantages.tolist() == [[0.0], [0.0]]
    shifted = found_in([2, 1, 2, 2, 1, 1], list("ppqqrr"), gpg)
    assert shifted.advantages.tolist() == found.advantages.tolist()


def test_equal_rewards_are_exactly_zero_in_any_number():
    for value, size in [(0.3, 8), (0.2, 16), (0.6, 8), (0.35, 7), (1e300, 5), (-0.0, 4)]:
        result = found_in([value] * size, ["g"] * size)
        assert result.advantages.tolist() == [[0.0]] * size
        assert std_of(result) == 0.0
        assert result.is_valid.all()


def test_siblings_are_found_by_id_in_any_order():
    found = found_in([1, 5, 0, 5, 0, 9, 0, 5], ["p", "q"] * 4).advantages[:, 0]
    assert found[0::2].tolist() == one_group([1, 0, 0, 0]).tolist()
    assert found[1::2].tolist() == one_group([5, 5, 9, 5]).tolist()


def test_unscored_rollouts_leave_the_statistics_and_the_loss():
    result = found_in([1.0, None, 0.0, None], ["g"] * 4)
    # Only 1 and 0 count: mean .5, std .7071.
    assert result.advantages[:, 0] == pytest.approx([0.707106, 0, -0.707106, 0], abs=1e-5)
    assert result.is_valid.tolist() == [True, False, True, False]
    assert std_of(result) == pytest.approx(0.707106, abs=1e-5)


def test_groups_without_a_baseline_are_dropped_and_counted():
    rewards = [7.0, None, 3.0, None, None, 1.0, 0.0]
    result = found_in(rewards, ["single", "lost", "one", "one", "lost", "ok", "ok"])
    assert result.is_valid.tolist() == [False] * 5 + [True, True]
    assert result.advantages[:5].tolist() == [[0.0]] * 5
    numbers = finalize(result.metrics)
    assert numbers["num_dropped_groups"] == 3
    assert numbers["num_dropped"] == 5
    assert numbers["num_unscored"] == 3
    assert numbers["frac_reward_zero_std"] == 0.0
    assert numbers["group_reward_std"] == pytest.approx(math.sqrt(0.5))  # of "ok" alone


def test_metrics_over_groups():
    result = found_in([1, 1, 0, 1, 0, 0], ["a", "a", "b", "b", "c", "c"])
    numbers = finalize(result.metrics)
    assert numbers["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert numbers["group_reward_std"] == pytest.approx(math.sqrt(0.5) / 3)


def test_no_rollouts_give_no_advantages_and_nan_metrics():
    result = found_in([], [])
    assert result.advantages.shape == (0, 1)
    assert math.isnan(finalize(result.metrics)["frac_reward_zero_std"])


def test_eps_is_above_zero():
    with pytest.raises(ValueError, match="eps must be above 0"):
        one_group([0.0, 1.0], eps=0.0)


@given(rewards_of_a_group)
def test_never_nan_never_beyond_the_bound(rewards):
    found = one_group(rewards)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= math.sqrt(len(rewards) - 1) * (1 + 1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=16))
def test_maxrl_stays_below_the_number_of_the_others(rewards):
    found = one_group(rewards, maxrl)
    assert (found <= (len(rewards) - 1) * (1 + 1e-9)).all()
    assert (found >= -1 - 1e-9).all()


@given(rewards_of_a_group)
def test_the_others_never_spread_further_than_the_rewards_do(rewards):
    span = max(rewards) - min(rewards)
    for estimate in (dr_grpo, rloo, opo):
        assert np.abs(one_group(rewards, estimate)).max() <= span * (1 + 1e-9)


@given(rewards_of_a_group, st.sampled_from([1.0, 10.0, 1e3]), st.floats(-1e3, 1e3))
def test_shift_and_scale_change_nothing_while_std_is_far_above_eps(rewards, scale, shift):
    base = found_in(rewards, ["g"] * len(rewards))
    # Where the std is near eps the invariance does not hold, by construction.
    assume(std_of(base) == 0.0 or std_of(base) >= 1.0)
    moved = one_group([reward * scale + shift for reward in rewards])
    assert moved == pytest.approx(base.advantages[:, 0], abs=1e-5)


@pytest.mark.parametrize("estimate", [grpo, dr_grpo, rloo, gpg, opo])
@given(data=st.data())
def test_a_permutation_of_the_batch_permutes_the_advantages(estimate, data):
    size = data.draw(st.integers(2, 20))
    rewards = data.draw(st.lists(st.none() | st.floats(-5, 5), min_size=size, max_size=size))
    group_ids = data.draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size))
    order = data.draw(st.permutations(range(size)))
    base = found_in(rewards, group_ids, estimate)
    moved = found_in([rewards[i] for i in order], [group_ids[i] for i in order], estimate)
    assert moved.advantages == pytest.approx(base.advantages[order], abs=1e-6)
    assert moved.is_valid.tolist() == base.is_valid[order].tolist()


@given(rewards_of_a_group)
def test_equals_the_formula_of_numpy(rewards):
    values = np.array(rewards)
    if values.max() == values.min():
        expected = np.zeros(len(values))
    else:
        expected = (values - values.mean()) / (values.std(ddof=1) + 1e-6)
    assert one_group(rewards) == pytest.approx(expected, rel=1e-9, abs=1e-9)
