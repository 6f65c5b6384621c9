from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.aggregate import count_tokens
from rlgym_llm_trainers.learner.batch import (
    TrainingSample,
    collate,
    sample_from_rollout,
    split_micro_batches,
)
from rlgym_llm_trainers.learner.streams import with_stream

from rlgym_llm.types import Completion, Rollout, Task, Turn

TASK = Task(prompt="2 + 3 = ?", answer="5")
PAD = 2  # also the id that ends a turn


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


def test_collate_pads_on_the_right_by_length_not_by_value():
    batch = collate([sample([2, 9, 2], [4, 2]), sample([2], [4, 5])], PAD)
    assert batch.input_ids.tolist() == [[2, 9, 2, 4, 2], [2, 4, 5, 2, 2]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]]
    assert batch.loss_mask.long().tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]]
    assert torch.allclose(
        batch.rollout_logprobs,
        torch.tensor([[0, 0, 0, -0.1, -0.2], [0, -0.1, -0.2, 0, 0]]),
    )
    assert count_tokens(batch.loss_mask) == (4, 2)
    assert batch.advantages is batch.old_logprobs is batch.ref_logprobs is None
    assert batch.to("cpu").input_ids.dtype == torch.int64
    assert batch.to("cpu").advantages is None


def test_every_optional_stream_reaches_the_batch():
    names = ("advantages", "returns", "values", "old_logprobs", "ref_logprobs", "is_weights")
    longer, shorter = sample([1, 2], [4, 5]), sample([1], [4])
    for number, name in enumerate(names):
        streams = ((0.0, 0.0, -0.5, float(number)), (0.0, 1.5))
        pair = [replace(s, **{name: x}) for s, x in zip((longer, shorter), streams, strict=True)]
        batch = collate(pair, PAD)
        assert getattr(batch, name).tolist() == [[0, 0, -0.5, number], [0, 1.5, 0, 0]]
        assert getattr(batch, name).dtype == torch.float32
        assert all(getattr(batch, other) is None for other in names if other != name)


def test_streams_come_back_from_tensors_exactly():
    samples = [sample([1, 2], [4, 5]), sample([1], [4])]
    values = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    attached = with_stream(samples, "ref_logprobs", values)
    assert len(attached[1].ref_logprobs) == 2
    again = collate(attached, PAD).ref_logprobs
    assert torch.equal(again[0], values[0])
    assert again[1].tolist() == [*values[1, :2].tolist(), 0.0, 0.0]
    with pytest.raises(ValueError, match="only 1 of 2 samples have ref_logprobs"):
        collate([attached[0], samples[1]], PAD)
    with pytest.raises(ValueError, match="2 samples but 3 rows"):
        with_stream(samples, "old_logprobs", torch.zeros(3, 4))


def test_micro_batches_by_length():
    samples = [sample([1] * n, [4]) for n in (4, 1, 3, 2)]  # lengths 5, 2, 4, 3
    parts = split_micro_batches(samples, 2)
    assert [[s.num_tokens for s in part] for part in parts] == [[5, 4], [3, 2]]
    with pytest.raises(ValueError, match="micro_size must be at least 1"):
        split_micro_batches(samples, 0)
    with pytest.raises(ValueError, match="at least one sample"):
        collate([], PAD)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=9),
    st.integers(1, 9),
)
def test_the_parts_hold_every_token_once(shapes, micro_size):
    samples = [replace(sample([1] * p, [4] * n), sample_index=i) for i, (p, n) in enumerate(shapes)]
    parts = split_micro_batches(samples, micro_size)
    assert sorted(s.sample_index for part in parts for s in part) == list(range(len(samples)))
    assert all(len(part) <= micro_size for part in parts)
    batches = [collate(part, PAD) for part in parts]
    counts = [count_tokens(batch.loss_mask) for batch in batches]
    assert tuple(map(sum, zip(*counts, strict=True))) == (sum(n for _, n in shapes), len(shapes))
    assert sum(int(b.attention_mask.sum()) for b in batches) == sum(p + n for p, n in shapes)
