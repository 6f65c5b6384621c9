"""Samples to right-padded tensors, stream by stream."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.algorithms.aggregate import count_tokens
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.streams import with_stream

PAD = 2  # also the id that ends a turn


def sample(prompt, sampled):
    return TrainingSample(
        token_ids=(*prompt, *sampled),
        loss_mask=(False,) * len(prompt) + (True,) * len(sampled),
        rollout_logprobs=(0.0,) * len(prompt) + tuple(-0.1 * (i + 1) for i in range(len(sampled))),
        policy_versions=(-1,) * len(prompt) + (0,) * len(sampled),
        rollout_id="r",
        group_id="g",
        sample_index=1,
    )


def test_a_batch_needs_a_sample():
    with pytest.raises(ValueError, match="at least one sample"):
        collate([], PAD)


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
