"""The order of an update's calls, a cache that is not reset, and a failure at every call."""

from __future__ import annotations

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.canary import learner_scores
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights
from rlgym_llm_trainers.generators.weight_sync.update import run_update

from rlgym_llm.errors import WeightSyncError

PROMPT = (7, 8, 9, 10)


def learn(policy):
    """One update of the learner; returns a copy of the weights before."""
    old = [(name, tensor.clone()) for name, tensor in policy_weights(policy.model)]
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    return old


def ours(policy):
    return learner_scores(policy, [PROMPT])


def test_an_update_reaches_the_engine(policy, engine_of):
    engine = engine_of(policy)
    before = ours(policy)
    learn(policy)
    assert ours(policy) != before
    run_update(engine, policy_weights(policy.model), 4)
    assert (engine.version, engine.is_paused) == (4, False)
    assert engine.generate(PROMPT) == ours(policy)


@pytest.mark.data
def test_prefix_cache_case(bug_report, policy, engine_of):
    case = bug_report("sync-prefix_cache_after_update")
    engine = engine_of(policy)
    steps = {
        "generate(p)": lambda: engine.generate(PROMPT),
        "update_weights": lambda: run_update(engine, policy_weights(policy.model), 1),
    }
    first, update, second = case["input"]["calls"]
    old = steps[first]()
    learn(policy)
    steps[update]()
    order = case["right"]["values"]["order"]
    assert [call for call in engine.calls if call in order] == order
    assert steps[second]() == ours(policy) != old


@pytest.mark.data
def test_reset_refused_case(bug_report, policy, engine_of):
    case = bug_report("sync-reset_refused_or_too_early")
    num_stuck = case["input"]["in_flight_requests"]
    ending = engine_of(policy, num_stuck=num_stuck)
    before = ours(policy)
    learn(policy)
    run_update(ending, policy_weights(policy.model), 1)  # what is in flight is ended
    reset = ["reset_prefix_cache", "abort", "reset_prefix_cache"]
    assert ending.calls == ["pause", "start", "update", "finish_update", *reset, "resume"]
    assert ending.generate(PROMPT) == ours(policy)

    assert case["input"]["reset_returns"] is False
    assert case["right"]["values"]["error_if_false"]
    refusing = engine_of(policy, num_stuck=num_stuck, refusals=10)
    with pytest.raises(WeightSyncError, match=r"prefix cache, .* was not reset"):
        run_update(refusing, policy_weights(policy.model), 1)
    assert refusing.is_paused
    assert before != ours(policy)


def test_a_refusal_puts_the_old_weights_back(policy, engine_of):
    engine = engine_of(policy, refusals=2)
    cached = engine.generate(PROMPT)
    old = learn(policy)
    with pytest.raises(WeightSyncError, match="it samples on from version 0"):
        run_update(engine, policy_weights(policy.model), 1, previous=lambda: (old, 0))
    assert engine.version == 0
    assert engine.generate(PROMPT) == cached == engine.score([PROMPT])


@pytest.mark.parametrize("call", ["start", "update", "finish_update", "reset_prefix_cache"])
def test_a_failure_puts_the_old_weights_back(policy, engine_of, call):
    engine = engine_of(policy, fails_in=call)
    before = engine.score([PROMPT])
    old = learn(policy)
    with pytest.raises(WeightSyncError) as caught:
        run_update(engine, policy_weights(policy.model), 6, previous=lambda: (old, 5))
    assert str(caught.value) == (
        "version 6 did not reach the generator: cut off; it samples on from version 5"
    )
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert (engine.version, engine.is_paused) == (5, False)
    assert engine.generate(PROMPT) == before
    run_update(engine, policy_weights(policy.model), 6)  # the next try succeeds
    assert engine.generate(PROMPT) == ours(policy)


@pytest.mark.parametrize("call", ["start", "update", "finish_update", "reset_prefix_cache"])
def test_without_old_weights_it_stays_paused(policy, engine_of, call):
    engine = engine_of(policy, fails_in=call)
    with pytest.raises(WeightSyncError, match="it stays paused: its weights are of no one version"):
        run_update(engine, policy_weights(policy.model), 1)
    assert engine.is_paused
    assert "resume" not in engine.calls


def test_old_weights_that_are_gone_leave_it_paused(policy, engine_of):
    def gone():
        raise WeightSyncError("v0.safetensors: no such weight file")

    engine = engine_of(policy, fails_in="update")
    with pytest.raises(WeightSyncError, match=r"cut off; it stays paused: .*\(v0\.safetensors"):
        run_update(engine, policy_weights(policy.model), 1, previous=gone)
    assert engine.is_paused


def test_what_cannot_be_paused_goes_on_as_it_was(policy, engine_of):
    engine = engine_of(policy, fails_in="pause")
    learn(policy)
    before = engine.score([PROMPT])
    with pytest.raises(WeightSyncError, match="cannot be paused: cut off; its old weights"):
        run_update(engine, policy_weights(policy.model), 1)
    assert engine.calls == ["pause", "resume"]
    assert engine.generate(PROMPT) == before
