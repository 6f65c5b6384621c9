from __future__ import annotations

import pytest

MOVED, CLIPPED, LR = "actor/ppo_kl", "actor/pg_clipfrac", "actor/lr"
TWO_UPDATES = ("--data.train_batch_size", "8", "--actor.ppo_mini_batch_size", "4")


@pytest.mark.parametrize(
    ("clipped", "words"),
    [
        (0.0, None),
        (0.05, None),
        (0.3, None),
        (0.31, "too violent"),
        (0.8, "too violent"),
        (0.81, "almost nothing is learned"),
    ],
)
def test_bands_of_the_clip_fraction(judge, steps, clipped, words):
    finding = judge("clip_fraction", steps({CLIPPED: clipped}))
    assert (finding is None) is (words is None)
    if finding:
        assert words in finding.cause
        assert finding.keys[0] == "actor.optim.lr"


def test_clipping_of_stale_samples_is_named_as_such(judge, steps):
    rows = steps({CLIPPED: 0.9, "training/off_policy/trajectory_staleness/mean": 3.0})
    flags = ("--algorithm.rollout_correction.bypass_mode", "true")
    assert judge("clip_fraction", rows, *flags).keys == ("rollout.max_staleness",)
    assert judge("clip_fraction", rows).keys[0] == "actor.optim.lr"


def test_one_violent_step_is_no_finding(judge, steps):
    assert judge("clip_fraction", steps({CLIPPED: [0.0, 0.0, 0.0, 1.0]})) is None


@pytest.mark.parametrize(
    ("kl", "clipped", "fires"),
    [(0.0, 0.0, True), (1e-6, 9e-4, True), (1e-5, 0.0, False), (0.0, 1e-3, False)],
)
def test_a_policy_that_does_not_move(judge, steps, kl, clipped, fires):
    rows = steps({MOVED: kl, CLIPPED: clipped, LR: 1e-6})
    finding = judge("policy_still", rows, *TWO_UPDATES)
    assert (finding is not None) is fires
    if finding:
        assert "learning rate 1e-06 is too small" in finding.cause


def test_one_optimizer_step_a_batch_stands_still_by_itself(judge, steps):
    rows = steps({MOVED: 0.0, CLIPPED: 0.0, LR: 1e-6})
    assert judge("policy_still", rows) is None
    assert judge("policy_still", rows, "--actor.ppo_epochs", "2") is not None
    # Two mini-batches were planned, but half of the groups had to be dropped.
    halved = [row | {"num_dropped_groups": 4.0} for row in rows]
    assert judge("policy_still", halved, *TWO_UPDATES) is None


def test_a_policy_that_stands_for_the_want_of_differences(judge, steps):
    rows = steps({MOVED: 0.0, CLIPPED: 0.0, LR: 1e-6, "frac_reward_zero_std": 1.0})
    assert "all equal" in judge("policy_still", rows, *TWO_UPDATES).cause


def test_a_warm_up_stands_still_and_is_none(judge, steps):
    rates = [0.0, 3e-8, 6e-8, 9e-8]  # of 1e-6
    rows = steps({MOVED: 0.0, CLIPPED: 0.0, LR: rates})
    assert judge("policy_still", rows, *TWO_UPDATES) is None


@pytest.mark.parametrize(
    ("key", "values", "fires"),
    [
        (MOVED, [0.001, 0.001, 0.001, 0.021], True),
        (MOVED, [0.001, 0.001, 0.001, 0.019], False),  # under the bound
        (MOVED, [0.003, 0.003, 0.003, 0.029], False),  # under ten times
        (MOVED, [0.003, 0.003, 0.003, 0.031], True),
        (MOVED, [0.101] * 4, True),  # too far each time
        (MOVED, [0.099] * 4, False),
        ("actor/kl", [0.01, 0.01, 0.01, 0.11], True),
        ("actor/kl", [0.01, 0.02, 0.03, 0.04], False),
        ("actor/kl", [2.0] * 4, False),  # far from the reference, without a jump
        ("actor/reward_kl_penalty", [-0.005, 0.005, -0.005, 0.2], True),
    ],
)
def test_a_jump_of_the_kl(judge, steps, key, values, fires):
    assert (judge("kl_spike", steps({key: values})) is not None) is fires


@pytest.mark.parametrize(
    ("kl", "norm", "lr", "fires"),
    [
        (0.0, 0.3, 1e-6, True),
        (1e-11, 0.3, 1e-6, True),
        (1e-9, 0.3, 1e-6, False),
        ([0.0, 1e-9, 4e-9, 9e-9], 0.3, 1e-6, False),  # leaves from the reference
        (0.0, 0.0, 1e-6, False),  # nothing to follow
        (0.0, 0.3, 0.0, False),
    ],
)
def test_a_reference_that_moves_along(judge, steps, kl, norm, lr, fires):
    rows = steps({"actor/kl": kl, "actor/grad_norm": norm, LR: lr})
    assert (judge("kl_flat", rows) is not None) is fires


def test_nought_is_larger_for_a_linear_estimator(judge, steps):
    rows = steps({"actor/kl": 5e-8, "actor/grad_norm": 0.3, LR: 1e-6})
    assert judge("kl_flat", rows, "--actor.kl_loss_type", "k1") is not None
    assert judge("kl_flat", rows, "--actor.kl_loss_type", "k3") is None


def gradients(norm, *, low=-1.0, high=1.0, clipped=0.0):
    return {
        "actor/grad_norm": norm,
        "critic/advantages/min": low,
        "critic/advantages/max": high,
        CLIPPED: clipped,
    }


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (gradients(0.0), "does not reach the weights"),
        (gradients(0.9e-7), "does not reach the weights"),
        (gradients(1e-7), None),
        (gradients(0.0, low=0.0, high=0.0), None),  # rewards all equal: no gradient is right
        (gradients(0.0, clipped=1.0), "every ratio is clipped"),
    ],
)
def test_a_gradient_that_is_dead_beside_advantages(judge, steps, row, cause):
    finding = judge("dead_gradient", steps(row))
    assert (finding is None) is (cause is None)
    if finding:
        assert cause in finding.cause


@pytest.mark.parametrize(
    ("share", "severity"), [(0.0, None), (None, None), (0.25, "warning"), (1.0, "error")]
)
def test_a_skipped_step_is_said_at_once(judge, share, severity):
    finding = judge("skipped_steps", [{"actor/skipped_ratio": share}])
    assert (finding.severity if finding else None) == severity


# Losses +-x have a std of x, a fifth of advantages of 1 is .2.
@pytest.mark.parametrize(("swing", "fires"), [(0.19, False), (0.21, True)])
def test_a_loss_that_swings(judge, steps, swing, fires):
    losses = {"actor/pg_loss": [swing, -swing] * 2}
    assert (judge("loss_swings", steps(gradients(0.3) | losses)) is not None) is fires
    without = gradients(0.0, low=0.0, high=0.0) | {"actor/pg_loss": [1.0, -1.0] * 2}
    assert judge("loss_swings", steps(without)) is None
