"""Per-token streams of samples: many tuples as one tensor, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlgym_llm_trainers.learner.sample import Stream, TrainingSample

__all__ = ["padded", "with_stream"]


def padded(rows: Sequence[Sequence[float]]) -> Tensor:
    """The rows as one tensor [B, T] in float64, 0 after each; a batch for the model has float32.

    >>> padded([[-0.5, -1.0], [-2.0]]).tolist()
    [[-0.5, -1.0], [-2.0, 0.0]]
    """
    return pad_sequence([torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True)


def with_stream(
    samples: Sequence[TrainingSample], name: Stream, values: Tensor
) -> list[TrainingSample]:
    """The samples with the stream ``name`` from ``values`` [B, T], right-padded as by `collate`."""
    if len(samples) != len(values):
        raise ValueError(f"{len(samples)} samples but {len(values)} rows of {name}")
    streams: list[dict[str, Any]] = [
        {name: tuple(row[: sample.num_tokens])}
        for sample, row in zip(samples, values.tolist(), strict=True)
    ]
    return [replace(sample, **stream) for sample, stream in zip(samples, streams, strict=True)]
