"""The guard asks every generator after every sync and remembers what each one said."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.canary import disagreement, learner_scores
from rlgym_llm_trainers.generators.weight_sync.guard import CanaryGuard
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights
from rlgym_llm_trainers.generators.weight_sync.update import run_update

from rlgym_llm.config_rollout import RolloutConfig, WeightSyncConfig
from rlgym_llm.errors import WeightSyncError


def learn(policy, factor):
    with torch.no_grad():
        policy.model.model.norm.weight.mul_(factor)


def test_every_generator_is_asked_and_the_largest_difference_told(policy, engine_of):
    guard = CanaryGuard(policy)
    one, other = engine_of(policy), engine_of(policy)
    assert guard.check({"one": one.score}, version=0) == {"weight_sync/canary_max_diff": 0.0}
    with torch.no_grad():
        other.policy.model.model.norm.weight.mul_(1 + 1e-5)
    expected = disagreement(learner_scores(policy, guard.sequences), other.score(guard.sequences))
    assert 0 < expected < 0.001
    found = guard.check({"one": one.score, "other": other.score}, version=0)
    assert found == {"weight_sync/canary_max_diff": expected}
    learn(other.policy, 1.5)
    with pytest.raises(WeightSyncError, match="generator other does not sample"):
        guard.check({"one": one.score, "other": other.score}, version=0)


def test_one_that_kept_its_weights_through_a_tiny_step_is_named(policy, engine_of):
    guard = CanaryGuard(policy)
    engines = {"one": engine_of(policy), "stale": engine_of(policy)}
    scores = {name: engine.score for name, engine in engines.items()}
    guard.check(scores, version=0)
    learn(policy, 1 + 2e-5)
    run_update(engines["one"], policy_weights(policy.model), 1)
    with pytest.raises(WeightSyncError, match="stale still samples from the weights before"):
        guard.check(scores, version=1)
    compare = guard.expect(1)
    assert compare("one", engines["one"].score(guard.sequences)) == 0.0  # and again, if it is asked
    fresh = engine_of(policy)  # one that took a dead one's place
    assert compare("stale", fresh.score(guard.sequences)) == 0.0


def test_in_fewer_bits_a_step_may_be_rounded_away(policy, engine_of):
    half = dataclasses.replace(policy, model=policy.model.to(torch.bfloat16))
    guard = CanaryGuard(half)
    engine = engine_of(half)
    guard.check({"one": engine.score}, version=0)
    learn(half, 1 + 8e-3)
    apart = guard.check({"one": engine.score}, version=1)["weight_sync/canary_max_diff"]
    assert 1e-4 < apart < 0.1


def test_scores_are_of_when_they_were_expected(policy, engine_of):
    guard = CanaryGuard(policy)
    compare, engine = guard.expect(0), engine_of(policy)
    learn(policy, 2)
    assert compare("one", engine.score(guard.sequences)) == 0.0


def test_from_config(policy):
    def config(max_model_len: int | None = None, **sync) -> RolloutConfig:
        return RolloutConfig(max_model_len=max_model_len, weight_sync=WeightSyncConfig(**sync))

    assert CanaryGuard.from_config(policy, config(canary=False)) is None
    short = CanaryGuard.from_config(policy, config(max_model_len=12))
    assert {len(sequence) for sequence in short.sequences} == {11}
    loose = CanaryGuard.from_config(policy, config(canary_tolerance=50.0))
    wrong = [[0.0] * 15] * 4
    assert 0 < loose.expect(0)("one", wrong) < 50
    strict = CanaryGuard.from_config(policy, config())
    with pytest.raises(WeightSyncError, match=r"allowed 0\.001"):
        strict.expect(0)("one", wrong)
