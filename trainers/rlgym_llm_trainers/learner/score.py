"""What a model says of samples, as one more stream of theirs: log-probs or values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.sample import Stream, TrainingSample
from rlgym_llm_trainers.learner.streams import with_stream

__all__ = ["add_scores"]


def add_scores(
    samples: Sequence[TrainingSample],
    stream: Stream,
    score: Callable[[Batch], Tensor],
    batching: Batching,
) -> list[TrainingSample]:
    """The samples, in the order given, with ``stream`` from ``score``, a batch to [B, T].

    Each rank scores its share of them, and all get the scores of all.
    """
    own: dict[str, Any] = {}
    with torch.no_grad():
        for part, batch in batching.parts(samples):
            for sample in with_stream(part, stream, score(batch)):
                own[sample.rollout_id] = getattr(sample, stream)
    scores: dict[str, Any] = {}
    for found in batching.ranks.gather(own):
        scores |= found
    streams: list[dict[str, Any]] = [{stream: scores[sample.rollout_id]} for sample in samples]
    return [replace(sample, **one) for sample, one in zip(samples, streams, strict=True)]
