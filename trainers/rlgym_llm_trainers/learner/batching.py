"""How samples become the batches of one model on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from rlgym_llm_trainers.learner.batch import (
    Batch,
    TrainingSample,
    collate,
    split_micro_batches,
)
from rlgym_llm_trainers.learner.micro_batches import split_samples

__all__ = ["Batching"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Cuts samples into micro-batches; it bounds the memory and never changes a result."""

    max_sequences: int
    """Sequences of a micro-batch at most."""
    is_packed: bool
    """Whether the model computes no padding, and a prompt that siblings share only once."""
    pad_token_id: int
    device: torch.device

    def parts(
        self, samples: Sequence[TrainingSample]
    ) -> Iterator[tuple[list[TrainingSample], Batch]]:
        """Each micro-batch, as samples and as tensors; every sample is in exactly one.

        Siblings together where they share their prompt, else equal lengths to pad little.
        """
        if self.is_packed:
            parts = split_samples(samples, max_sequences=self.max_sequences)
        else:
            parts = split_micro_batches(samples, self.max_sequences)
        for part in parts:
            yield part, collate(part, self.pad_token_id).to(self.device)
