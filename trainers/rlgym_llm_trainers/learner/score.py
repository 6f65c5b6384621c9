"""What a model says of samples, as one more stream of theirs: log-probs or values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rlgym_llm_trainers.learner.batch import Batch, Stream, TrainingSample, with_stream
from rlgym_llm_trainers.learner.batching import Batching

__all__ = ["add_scores"]


def add_scores(
    samples: Sequence[TrainingSample],
    stream: Stream,
    score: Callable[[Batch], Tensor],
    batching: Batching,
) -> list[TrainingSample]:
    """The samples, in the order given, with ``stream`` from ``score``, a batch to [B, T]."""
    done: dict[str, TrainingSample] = {}
    with torch.no_grad():
        for part, batch in batching.parts(samples):
            for sample in with_stream(part, stream, score(batch)):
                done[sample.rollout_id] = sample
    return [done[sample.rollout_id] for sample in samples]
