"""Rollouts to training samples: what was sampled is trained, the rest only read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlgym_llm_trainers.learner.sample import TrainingSample, sample_from_rollout

from rlgym_llm.types import Completion, Rollout, Task, Turn

TASK = Task(prompt="2 + 3 = ?", answer="5")


def turn(prompt, sampled, *, version=0, **fields):
    options = {
        "logprobs": tuple(-0.1 * (i + 1) for i in range(len(sampled))),
        "version_spans": ((0, len(sampled), version),),
    }
    completion = Completion(text="x", token_ids=tuple(sampled), **(options | fields))
    return Turn(new_prompt_token_ids=tuple(prompt), completion=completion)


def rollout(*turns):
    return Rollout(id="r", task=TASK, group_id="g", sample_index=1, seed=0, turns=turns)


def sample(prompt, sampled):
    return sample_from_rollout(rollout(turn(prompt, sampled)))


def test_one_turn():
    found = sample_from_rollout(rollout(turn([1, 2], [4, 2], version=3)))
    assert found == TrainingSample(
        token_ids=(1, 2, 4, 2),
        loss_mask=(False, False, True, True),
        rollout_logprobs=(0.0, 0.0, -0.1, -0.2),
        policy_versions=(-1, -1, 3, 3),
        rollout_id="r",
        group_id="g",
        sample_index=1,
    )
    assert (found.num_tokens, found.num_trained_tokens) == (4, 2)


def test_several_turns_train_what_was_sampled_and_only_read_the_rest():
    first = turn([1], [5, 2], version=0)
    second = turn([7, 8], [6, 6, 2], version_spans=((1, 3, 2), (0, 1, 1)))
    found = sample_from_rollout(rollout(first, second))
    assert found.token_ids == (1, 5, 2, 7, 8, 6, 6, 2)
    assert found.loss_mask == (False, True, True, False, False, True, True, True)
    assert found.policy_versions == (-1, 0, 0, -1, -1, 1, 2, 2)
    assert found.rollout_logprobs[3:6] == (0.0, 0.0, -0.1)


def test_what_nobody_can_vouch_for_is_not_trained_on():
    with pytest.raises(ValueError, match="rollout r, turn 0: its generator gave no log-probs"):
        sample_from_rollout(rollout(turn([1], [4], logprobs=None)))
    for spans in [(), ((0, 1, 0),), ((0, 1, 0), (0, 2, 1)), ((1, 2, 0),), ((0, 3, 0),)]:
        with pytest.raises(ValueError, match="do not cover its 2 tokens"):
            sample_from_rollout(rollout(turn([1], [4, 5], version_spans=spans)))
    with pytest.raises(ValueError, match="nothing predicts its first token"):
        sample([], [4, 5])
    with pytest.raises(ValueError, match="has no tokens"):
        sample_from_rollout(rollout())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_mask": (False, True)}, "4 token_ids but 2 loss_mask"),
        ({"advantages": (0.0,)}, "4 token_ids but 1 advantages"),
        ({"rollout_logprobs": (-1.0, 0.0, 0.0, 0.0)}, "log-prob 0"),
        ({"rollout_logprobs": (0.0, 0.0, float("-inf"), 0.0)}, "token 2 was sampled with"),
        ({"policy_versions": (-1, -1, 0, -1)}, "no version for trained token 3"),
    ],
)
def test_samples_say_no_at_construction(change, message):
    with pytest.raises(ValueError, match=message):
        replace(sample([1, 2], [4, 5]), **change)
