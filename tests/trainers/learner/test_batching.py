"""Samples to micro-batches of one model: of none there are none."""

from __future__ import annotations

import pytest
import torch
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.ranks import Ranks
from rlgym_llm_trainers.learner.score import add_scores


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_step_without_samples_is_no_batch(is_packed, world_size):
    """As where every reward of a step is masked: nothing is scored, and no rank waits."""
    batching = Batching(
        max_sequences=4,
        is_packed=is_packed,
        pad_token_id=0,
        device=torch.device("cpu"),
        ranks=Ranks(world_size=world_size),
    )
    assert list(batching.parts([])) == []
    if world_size == 1:
        assert add_scores([], "values", lambda batch: pytest.fail("scored"), batching) == []
