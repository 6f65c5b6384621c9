"""What the losses of an optimizer step are divided by, counted over the whole mini-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from rlgym_llm_trainers.algorithms.aggregate import Reduce, aggregate, tokens_by_prompt
from rlgym_llm_trainers.learner.sample import TrainingSample

__all__ = ["Denominators"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """Counts of a mini-batch, all its micro-batches and ranks: no part's share depends on them."""

    num_tokens: int
    num_sequences: int
    """Those with a trained token."""
    tokens_of_prompt: Mapping[str, int]
    """Trained tokens of each group."""

    @classmethod
    def of(cls, samples: Sequence[TrainingSample]) -> Denominators:
        """Those of the mini-batch that the samples make."""
        counts = [sample.multiplicity * sample.num_trained_tokens for sample in samples]
        return cls(
            num_tokens=sum(counts),
            num_sequences=sum(s.multiplicity for s in samples if s.num_trained_tokens),
            tokens_of_prompt=tokens_by_prompt(counts, [sample.group_id for sample in samples]),
        )

    def reduce(self, part: Sequence[TrainingSample], *, mode: str, max_length: int) -> Reduce:
        """`aggregate` for the micro-batch ``part``, with the counts of the whole bound.

        A sample that counts twice is worth what two equal ones would be, here and in the counts.
        """
        bound = partial(
            aggregate,
            mode=mode,
            num_tokens=self.num_tokens,
            num_sequences=self.num_sequences,
            num_prompts=sum(count > 0 for count in self.tokens_of_prompt.values()),
            prompt_tokens=torch.tensor([self.tokens_of_prompt[s.group_id] for s in part]),
            max_length=max_length,
        )
        if all(sample.multiplicity == 1 for sample in part):
            return bound
        times = torch.tensor([[float(sample.multiplicity)] for sample in part])
        return lambda values, mask: bound(values * times.to(values), mask)
