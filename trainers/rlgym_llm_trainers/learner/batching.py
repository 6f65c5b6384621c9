"""How samples become the batches of one model on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from rlgym_llm_trainers.learner.batch import (
    Batch,
    TrainingSample,
    collate,
    split_micro_batches,
)
from rlgym_llm_trainers.learner.micro_batches import split_over_ranks, split_samples
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks

__all__ = ["Batching"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Cuts samples into micro-batches; it bounds the memory and never changes a result."""

    max_sequences: int | None = None
    """Sequences of a micro-batch at most."""
    max_tokens: int | None = None
    """Tokens that are computed for a micro-batch at most."""
    is_packed: bool
    """Whether the model computes no padding, and a prompt that siblings share only once."""
    pad_token_id: int
    device: torch.device
    ranks: Ranks = ALONE
    """Who share the samples."""
    balances: bool = True
    """Gives each rank about as many tokens, and siblings to one; off, as many samples, in the order
    given."""

    def parts(
        self, samples: Sequence[TrainingSample]
    ) -> Iterator[tuple[list[TrainingSample], Batch]]:
        """Each micro-batch of this rank, as samples and as tensors; every sample is in exactly one.

        Siblings together where they share their prompt, else equal lengths to pad little. Every
        rank has equally many, for collective operations wait for all; one that has too few samples
        runs a stand-in, which trains nothing. Of no samples there is none.
        """
        if not samples:
            return
        for part in self._shares(samples)[self.ranks.rank]:
            whole = part or [_stand_in(samples)]
            yield whole, collate(whole, self.pad_token_id).to(self.device)

    def _shares(self, samples: Sequence[TrainingSample]) -> list[list[list[TrainingSample]]]:
        """Micro-batches of each rank; the same on every rank that asks, so nobody is told."""
        world_size = self.ranks.world_size
        if world_size == 1:
            return [self._split(samples)]
        if self.balances and self.is_packed:
            return split_over_ranks(
                samples,
                world_size,
                max_tokens=self.max_tokens,
                max_sequences=self.max_sequences,
            )
        if self.balances:
            shares = split_samples(samples, num_parts=world_size, share_prompts=False)
        else:
            ends = [len(samples) * rank // world_size for rank in range(world_size + 1)]
            shares = [list(samples[ends[r] : ends[r + 1]]) for r in range(world_size)]
        found = [self._split(share) if share else [] for share in shares]
        count = max(map(len, found))
        return [parts + [[]] * (count - len(parts)) for parts in found]

    def _split(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        if self.is_packed:
            return split_samples(
                samples,
                max_tokens=self.max_tokens,
                max_sequences=self.max_sequences,
            )
        return split_micro_batches(
            samples, self.max_sequences or len(samples), max_tokens=self.max_tokens
        )


def _stand_in(samples: Sequence[TrainingSample]) -> TrainingSample:
    """A sample without any trained token, with the streams that the others have."""
    model = min(samples, key=lambda sample: sample.num_tokens)
    return replace(
        model,
        loss_mask=(False,) * model.num_tokens,
        rollout_logprobs=(0.0,) * model.num_tokens,
        kept_sets=None,
        rollout_id="",
    )
