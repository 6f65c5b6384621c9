from __future__ import annotations

import pytest
from rlgym_llm_trainers.learner.sample import sample_from_rollout
from rlgym_llm_trainers.training.health.sample_rules import mask_metrics

APART = "training/rollout_probs_diff_mean"
RATIO = "rollout_corr/rollout_is_raw_mean"


def cut(share, *, longest=96, turns=1):
    return {
        "response_length/clip_ratio": share,
        "response_length/max": longest,
        "num_turns/max": turns,
    }


@pytest.mark.parametrize(("share", "fires"), [(0.25, False), (0.26, True)])
def test_a_quarter_of_the_responses_may_be_cut(judge, steps, share, fires):
    rows = steps(cut(share))
    finding = judge("truncation", rows)
    assert (finding is not None) is fires
    if finding:
        assert "26% of the responses are cut, at up to 96 tokens" in finding.seen
        assert finding.keys[0] == "data.max_response_length"
    assert judge("truncation", rows, "--trainer.health.max_truncated", "0.3") is None


def test_a_game_that_is_lost_for_want_of_turns_is_no_cut(judge, steps):
    limit = ("--data.max_response_length", "48")
    lost = steps(cut(0.5, longest=25, turns=8))
    assert judge("truncation", lost, *limit) is None  # the environment's own number of turns
    finding = judge("truncation", lost, *limit, "--rollout.max_turns", "8")
    assert finding.keys[0] == "rollout.max_turns"
    reached = steps(cut(0.5, longest=[25, 48, 25, 25], turns=8))
    assert judge("truncation", reached, *limit).keys[0] == "data.max_response_length"


def dropped(num, *, scored=64, masked=0, failed_reward=0, failed_rollout=0):
    return {
        "num_dropped": num,
        "scoring/num_scored": scored,
        "scoring/num_masked": masked,
        "scoring/num_failed_reward": failed_reward,
        "scoring/num_failed_rollout": failed_rollout,
    }


@pytest.mark.parametrize(
    ("row", "key"),
    [
        (dropped(16), None),  # 16 of 64 is a quarter
        (dropped(17), "reward"),
        (dropped(30, scored=34, masked=30), "rewards.on_truncated"),
        (dropped(30, scored=34, masked=10, failed_reward=20), "rewards.on_error"),
        (dropped(30, scored=34, failed_rollout=30), "rollout.max_seconds"),
        (dropped(0, scored=0), None),
    ],
)
def test_rows_that_train_nothing(judge, steps, row, key):
    finding = judge("dropped_rows", steps(row))
    assert (finding.keys if finding else None) == ((key,) if key else None)


@pytest.mark.parametrize(
    ("trained", "cause"), [(100, None), (101, "prompts"), (99, "some are not")]
)
def test_the_mask_holds_what_was_sampled(judge, trained, cause):
    row = {"training/num_trained_tokens": trained, "training/num_sampled_tokens": 100}
    finding = judge("mask_sanity", [row])  # at once, without a window
    assert (finding is None) is (cause is None)
    if finding:
        assert cause in finding.cause
        assert finding.severity == "error"


def test_tokens_are_counted_over_the_rollouts_that_train(group_of):
    rollouts = group_of(1, 1, 1).rollouts  # of one sampled token each
    samples = [sample_from_rollout(rollout) for rollout in rollouts[:2]]
    assert mask_metrics(samples, rollouts) == {
        "training/num_trained_tokens": 2.0,
        "training/num_sampled_tokens": 2.0,
    }
    assert mask_metrics([], rollouts)["training/num_sampled_tokens"] == 0.0


@pytest.mark.parametrize(
    ("columns", "seen"),
    [
        ({APART: 0.0201}, "differ by 0.02 in"),
        ({APART: 0.0199}, None),
        ({APART: [1e-4, 1e-4, 1e-4, 1.01e-3]}, "before by 0.0001"),
        ({APART: [1e-4, 1e-4, 1e-4, 0.99e-3]}, None),
        ({APART: [1e-7, 1e-7, 1e-7, 1e-5]}, None),  # rounding, whatever its ratio
        ({RATIO: 2.01}, "2.01 times as likely"),
        ({RATIO: 0.49}, "0.49 times as likely"),
        ({RATIO: 2.0}, None),
        ({RATIO: 0.5}, None),
    ],
)
def test_generator_and_learner_are_one_policy(judge, steps, columns, seen):
    finding = judge("logprob_mismatch", steps(columns))
    assert (finding is None) is (seen is None)
    if finding:
        assert seen in finding.seen
        assert finding.severity == "error"


@pytest.mark.parametrize(
    ("key", "value", "fires"),
    [
        ("rollout_is_eff_sample_size", 0.49, True),
        ("rollout_is_eff_sample_size", 0.5, False),
        ("rollout_rs_masked_fraction", 0.51, True),
        ("rollout_rs_masked_fraction", 0.5, False),
    ],
)
def test_a_correction_that_leaves_too_little(judge, steps, key, value, fires):
    # Sampled under version 1, trained at version 4.
    rows = steps(
        {f"rollout_corr/{key}": value, "training/off_policy/trajectory_staleness/mean": 3.0}
    )
    finding = judge("stale_samples", rows)
    assert (finding is not None) is fires
    if finding:
        assert "3 updates old" in finding.seen
        assert finding.keys[0] == "rollout.max_staleness"
