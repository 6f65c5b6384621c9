"""The canary's scores are right, and it sees a head that kept its old weights."""

from __future__ import annotations

import math

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.canary import (
    canary_sequences,
    canary_tolerance,
    check_canary,
    disagreement,
    learner_scores,
)
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights
from rlgym_llm_trainers.generators.weight_sync.update import run_update

from rlgym_llm.errors import WeightSyncError


def test_sequences_are_fixed_and_hold_no_special_id(policy):
    found = canary_sequences(policy.tokenizer, num=50, length=40)
    assert found == canary_sequences(policy.tokenizer, num=50, length=40)
    assert found != canary_sequences(policy.tokenizer, num=50, length=40, seed=1)
    assert [len(sequence) for sequence in found] == [40] * 50
    drawn = {token for sequence in found for token in sequence}
    everything = set(policy.tokenizer.get_vocab().values())
    assert drawn == everything - set(policy.tokenizer.all_special_ids)


def test_sequences_of_a_number_of_ids():
    drawn = {token for sequence in canary_sequences(5, num=9, length=9) for token in sequence}
    assert drawn == set(range(5))
    with pytest.raises(ValueError, match="length >= 2"):
        canary_sequences(5, length=1)
    with pytest.raises(ValueError, match="num >= 1"):
        canary_sequences(5, num=0)


def test_scores_of_a_head_of_zeros_are_those_of_a_fair_die(policy):
    with torch.no_grad():
        policy.model.lm_head.weight.zero_()
    size = policy.model.config.vocab_size
    found = learner_scores(policy, [(7, 8, 9), (10, 11)])
    assert found == [[pytest.approx(-math.log(size), abs=1e-12)] * n for n in (2, 1)]


def test_scores_are_the_log_softmax_of_each_sequence_alone(policy):
    sequences = [(7, 8, 9, 10), (20, 21), (30, 31, 32)]
    found = learner_scores(policy, sequences)
    for sequence, scores in zip(sequences, found, strict=True):
        with torch.no_grad():
            logits = policy.model(torch.tensor([sequence])).logits[0]
        logprobs = logits.double().log_softmax(-1)
        expected = [logprobs[i, token].item() for i, token in enumerate(sequence[1:])]
        assert scores == pytest.approx(expected, abs=1e-5)


def test_the_model_is_left_as_it_was(policy):
    policy.model.train()
    scores = learner_scores(policy, [(7, 8)])
    assert policy.model.training
    policy.model.eval()
    assert learner_scores(policy, [(7, 8)]) == scores
    assert not policy.model.training


def test_disagreement():
    assert disagreement([[-1.0, -2.0], [-3.0]], [[-1.0, -2.25], [-2.0]]) == 1.0
    assert disagreement([[-1.0]], [[-1.0]]) == 0.0
    for odd in ([[-1.0]], [[-1.0, -2.0], []], [[-1.0, math.nan]], [[-1.0, -math.inf]]):
        assert disagreement([[-1.0, -2.0]], odd) == math.inf
    assert disagreement([[-math.inf]], [[-math.inf]]) == math.inf


@pytest.mark.parametrize(
    ("configured", "dtype", "device", "expected"),
    [
        (None, torch.float32, "cpu", 0.001),
        (None, torch.bfloat16, "cpu", 0.1),
        (None, torch.float32, "cuda:1", 0.1),
        (0.02, torch.float32, torch.device("cpu"), 0.02),
    ],
)
def test_tolerance(configured, dtype, device, expected):
    assert canary_tolerance(configured, dtype=dtype, device=device) == expected


def test_the_message_says_who_what_and_the_way_out():
    with pytest.raises(WeightSyncError) as caught:
        check_canary([[-1.0]], [[-1.83]], generator="actor-2", version=3, tolerance=0.001)
    assert str(caught.value) == (
        "generator actor-2 does not sample from the learner's weights: after the sync to version 3 "
        "its log-probs of the canary differ by 0.83 (allowed 0.001). Likely causes: a sync that "
        "failed half-way, a tied head that kept its old copy, or weights of another dtype; where "
        "the difference is rounding alone, raise rollout.weight_sync.canary_tolerance"
    )
    found = check_canary([[-1.0]], [[-1.5]], generator="a", version=3, tolerance=0.5)
    assert found == 0.5


def check(engine, policy, sequences, **options):
    return check_canary(
        learner_scores(policy, sequences),
        engine.score(sequences),
        generator="engine",
        version=1,
        tolerance=0.001,
        **options,
    )


def test_a_head_that_kept_its_old_copy_is_seen(policy, engine_of):
    sequences = canary_sequences(policy.tokenizer)
    good, stale = engine_of(policy), engine_of(policy, stale_head=True)
    assert check(stale, policy, sequences) == 0.0
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.01)
    for engine in (good, stale):
        run_update(engine, policy_weights(policy.model), 1)
    assert check(good, policy, sequences) == 0.0
    with pytest.raises(WeightSyncError, match="a tied head that kept its old copy"):
        check(stale, policy, sequences)


def test_a_step_below_the_tolerance_that_did_not_arrive_is_seen(policy, engine_of):
    sequences = canary_sequences(policy.tokenizer)
    engine = engine_of(policy)
    ours, theirs = learner_scores(policy, sequences), engine.score(sequences)
    with torch.no_grad():
        policy.model.model.norm.weight.mul_(1 + 2e-5)
    moved = disagreement(learner_scores(policy, sequences), ours)
    assert 1e-4 < moved < 1e-3
    assert check(engine, policy, sequences) == moved  # not seen by the tolerance
    with pytest.raises(WeightSyncError, match="still samples from the weights before version 1"):
        check(engine, policy, sequences, before=(ours, theirs))
    run_update(engine, policy_weights(policy.model), 1)
    assert check(engine, policy, sequences, before=(ours, theirs)) == 0.0


def test_a_step_of_nothing_may_leave_the_scores_alone(policy, engine_of):
    sequences = canary_sequences(policy.tokenizer)
    engine = engine_of(policy)
    ours, theirs = learner_scores(policy, sequences), engine.score(sequences)
    assert check(engine, policy, sequences, before=(ours, theirs)) == 0.0
