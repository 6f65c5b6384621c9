from __future__ import annotations

import math

import numpy as np
import pytest

REWARD, SPREAD, FLAT = "critic/rewards/mean", "group_reward_std", "frac_reward_zero_std"
LOWEST, HIGHEST = "critic/rewards/min", "critic/rewards/max"


# Half of a spread of .4 is .2. Windows of (.9, .9, .9, .9) and x +- .01 (std .01, standard error
# of the difference .01 / 2 = .005): four of those are .02.
@pytest.mark.parametrize(("now", "fires"), [(0.69, True), (0.71, False), (1.2, False)])
def test_a_reward_that_has_fallen_by_half_the_spread(judge, steps, now, fires):
    rewards = [0.1, 0.2, 0.3, 0.4, *[0.9] * 4, *[now - 0.01, now + 0.01] * 2]
    finding = judge("reward_drop", steps({REWARD: rewards, SPREAD: 0.4}))
    assert (finding is not None) is fires
    if finding:
        assert "0.69, down from 0.9" in finding.seen
        assert finding.keys[0] == "actor.optim.lr"


# A fall of .3 between windows that are noise of std s: the standard error is s * sqrt(2 / 4), four
# of them are 2.83 s, which is .3 at s = .106.
@pytest.mark.parametrize(("noise", "fires"), [(0.1, True), (0.11, False)])
def test_a_fall_within_the_noise_of_the_steps_is_none(judge, steps, noise, fires):
    rewards = [0.9 + noise, 0.9 - noise] * 2 + [0.6 + noise, 0.6 - noise] * 2
    finding = judge("reward_drop", steps({REWARD: rewards, SPREAD: 0.1}))
    assert (finding is not None) is fires


# Half of a quarter of the range 0 to 1.6 is .2.
@pytest.mark.parametrize(("now", "fires"), [(0.69, True), (0.71, False)])
def test_a_fall_where_siblings_are_not_compared(judge, steps, now, fires):
    rows = steps({REWARD: [0.9] * 4 + [now] * 4, LOWEST: 0.0, HIGHEST: 1.6})
    assert (judge("reward_drop", rows) is not None) is fires


def test_a_fall_is_seen_however_slow(judge, steps):
    slow = [1.0 - 0.02 * step for step in range(40)]
    assert judge("reward_drop", steps({REWARD: slow, SPREAD: 0.4})) is not None


def test_equal_rewards_do_not_fall_by_rounding(judge, steps):
    assert judge("reward_drop", steps({REWARD: [0.1] * 8 + [0.1 - 1e-17] * 4, SPREAD: 0.0})) is None


@pytest.mark.parametrize("changed", [{"rewards/x/weight": [1.0] * 4 + [0.5] * 4}, "curriculum"])
def test_a_fall_that_is_not_the_policys_is_none(judge, steps, changed):
    columns = {REWARD: [0.9] * 4 + [0.2] * 4, SPREAD: 0.1}
    assert judge("reward_drop", steps(columns)) is not None
    extra = {"curriculum/share/level 1": 0.5} if changed == "curriculum" else changed
    assert judge("reward_drop", steps(columns | extra)) is None


def test_a_steady_reward_with_noise_raises_no_alarm(judge, steps):
    # 200 runs of 64 steps, 32 prompts x 8 samples at a success rate of one half.
    rng = np.random.default_rng(0)
    for _ in range(200):
        rewards = rng.binomial(256, 0.5, size=64) / 256
        rows = steps({REWARD: rewards.tolist(), SPREAD: 0.5})
        assert judge("reward_drop", rows) is None
        assert judge("reward_spread", rows) is None


@pytest.mark.parametrize(
    ("spread", "reward", "fires"),
    [
        (0.09, 0.5, True),  # under a quarter of .4
        (0.11, 0.5, False),
        (0.09, 0.71, False),  # risen by more than half of .4: success, not collapse
        (0.09, 0.69, True),
        (3.9, 0.5, False),
        (4.1, 0.5, True),  # ten times .4
    ],
)
def test_a_spread_that_collapses_or_explodes(judge, steps, spread, reward, fires):
    columns = {REWARD: [0.5] * 4 + [reward] * 4, SPREAD: [0.4] * 4 + [spread] * 4}
    finding = judge("reward_spread", steps(columns))
    assert (finding is not None) is fires


def noisy(values, num=4):
    """Rows of batches whose groups all have these rewards."""
    std = math.sqrt(sum((v - sum(values) / len(values)) ** 2 for v in values) / (len(values) - 1))
    row = {SPREAD: std, FLAT: 0.0, LOWEST: min(values), HIGHEST: max(values)}
    return [row] * num


def test_rewards_that_differ_by_noise_alone(judge):
    finding = judge("noise_rewards", noisy([0.61, 0.60, 0.62, 0.61]))
    assert finding is not None
    assert "differ by 0.0082 in rewards of up to 0.62" in finding.seen
    assert judge("noise_rewards", noisy([1.0, 0.0, 1.0, 1.0])) is None
    flags = ("--algorithm.norm_adv_by_std_in_grpo", "false")
    assert judge("noise_rewards", noisy([0.61, 0.60, 0.62, 0.61]), *flags) is None


@pytest.mark.parametrize(("spread", "fires"), [(0.0099, True), (0.0101, False)])
def test_the_bound_of_noise_is_two_parts_in_a_hundred_of_the_groups_that_differ(
    judge, steps, spread, fires
):
    # Half the groups are flat: the others differ by twice the mean, .0198 or .0202 of 1.
    rows = steps({SPREAD: spread, FLAT: 0.5, LOWEST: 0.0, HIGHEST: 1.0})
    assert (judge("noise_rewards", rows) is not None) is fires


def test_groups_without_any_spread_are_another_rules(judge, steps):
    rows = steps({SPREAD: 0.0, FLAT: 1.0, LOWEST: 0.0, HIGHEST: 1.0})
    assert judge("noise_rewards", rows) is None


def flat(mean, *, share=0.75, entropy=0.5, lowest=0.0, highest=1.0):
    return {
        FLAT: share,
        REWARD: mean,
        LOWEST: lowest,
        HIGHEST: highest,
        "actor/entropy": entropy,
    }


@pytest.mark.parametrize(("share", "fires"), [(0.5, False), (0.51, True)])
def test_half_of_the_groups_may_be_flat(judge, steps, share, fires):
    rows = steps(flat(0.5, share=share))
    assert (judge("zero_variance_groups", rows) is not None) is fires
    flags = ("--trainer.health.max_zero_variance", "0.6")
    assert judge("zero_variance_groups", rows, *flags) is None


def test_one_flat_step_is_no_finding(judge, steps):
    rows = steps(flat(0.5, share=[0.1, 0.1, 0.1, 1.0]))
    assert judge("zero_variance_groups", rows) is None


@pytest.mark.parametrize(
    ("row", "flags", "cause", "key"),
    [
        (flat(0.95), (), "too easy", "data.curriculum.type"),
        (flat(0.05), (), "too hard", "data.curriculum.type"),
        (flat(0.5, entropy=0.01), (), "temperature is too low", "rollout.temperature"),
        (flat(0.5), ("--rollout.n", "2"), "2 siblings are too few", "rollout.n"),
        (flat(0.5), (), "solved or hopeless", "data.curriculum.type"),
        (flat(0.0, highest=0.0), (), "no reward differs", "reward"),
        (flat(-0.95, lowest=-1.0, highest=0.0), (), "too hard", "data.curriculum.type"),
    ],
)
def test_why_groups_are_flat(judge, steps, row, flags, cause, key):
    finding = judge("zero_variance_groups", steps(row), *flags)
    assert cause in finding.cause
    assert finding.keys[0] == key


@pytest.mark.parametrize(
    ("before", "share", "severity", "key"),
    [
        (0.36, 1.0, "error", "actor.optim.lr"),
        (0.36, 0.9, "warning", "actor.optim.lr"),
        (0.15, 1.0, "warning", "data.curriculum.type"),
    ],
)
def test_a_policy_that_has_fallen_is_not_given_too_hard_tasks(
    judge, steps, before, share, severity, key
):
    rows = steps(flat([before, 0.0, 0.0, 0.0, 0.0], share=share))
    finding = judge("zero_variance_groups", rows)
    assert (finding.severity, finding.keys[0]) == (severity, key)


def components(*, math_weight=1.0, length_weight=1.0, length_std=6.0, contribution=1.0):
    return {
        "rewards/math/weight": math_weight,
        "rewards/math/mean": 0.5,
        "rewards/math/std": 0.5,
        "rewards/math/contribution": math_weight * 0.5,
        "rewards/length/weight": length_weight,
        "rewards/length/mean": 20.0,
        "rewards/length/std": length_std,
        "rewards/length/contribution": contribution * length_weight * 20.0,
    }


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),  # 6 beside .5
        ({"length_std": 5.0}, False),  # ten times is still allowed
        ({"length_std": 5.1}, True),
        ({"length_weight": 0.5, "length_std": 11.0}, True),
        ({"length_weight": -0.001}, False),  # a tie-breaker: the greater weight is the louder
        ({"length_weight": 2.0}, False),  # wanted, by its weight
        ({"math_weight": 0.0}, False),  # a metric
        ({"contribution": 0.5}, False),  # gated or transformed: its spread is not known
    ],
)
def test_a_component_that_drowns_another(judge, steps, changes, fires):
    rows = steps(components(**changes))
    finding = judge("component_scale", rows)
    assert (finding is not None) is fires
    if finding:
        assert finding.keys[0] == "rewards.components.length.weight"
        assert "'length' drowns 'math'" in finding.cause
    flags = ("--reward", "math=1.0", "--rewards.aggregate", "normalize_then_sum")
    assert judge("component_scale", rows, *flags) is None


def test_a_component_that_does_not_vary_is_not_drowned(judge, steps):
    rows = steps(components() | {"rewards/math/std": 0.0})
    assert judge("component_scale", rows) is None
