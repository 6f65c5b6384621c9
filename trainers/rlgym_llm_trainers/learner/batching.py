"""How samples become the batches of one model on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from rlgym_llm_trainers.learner.batch import Batch, collate
from rlgym_llm_trainers.learner.micro_batches import split_over_ranks
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.learner.sample import TrainingSample

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
        shares = split_over_ranks(
            samples,
            self.ranks.world_size,
            max_tokens=self.max_tokens,
            max_sequences=self.max_sequences,
            is_packed=self.is_packed,
            balances=self.balances,
        )
        for part in shares[self.ranks.rank]:
            whole = part or [_stand_in(samples)]
            yield whole, collate(whole, self.pad_token_id).to(self.device)


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
