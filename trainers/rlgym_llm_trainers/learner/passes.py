"""A step's samples as gradients, one for each optimizer step: mini-batches, pass after pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlgym_llm_trainers.algorithms.metrics import Metric
from rlgym_llm_trainers.learner.accumulate import Objective, accumulate
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.mini_batches import mini_batches
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.stepper import Stepper

__all__ = ["Passes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How the samples of a step are gone through, alike for the policy and for the critic."""

    batching: Batching
    stepper: Stepper
    num_prompts: int
    """Whole groups, for each optimizer step so many."""
    num_epochs: int
    """Passes over all samples."""
    loss_agg_mode: str
    """How the losses of tokens become one number."""
    max_length: int
    """What ``seq-mean-token-sum-norm`` divides by."""
    shuffle_seed: int | None = None
    """None where mini-batches come in the order of the samples."""

    def gradients(
        self, samples: Sequence[TrainingSample], objective: Objective, *, step: int
    ) -> Iterator[dict[str, Metric]]:
        """The metrics of each mini-batch, its gradient left on the parameters for ``stepper``."""
        for mini_batch in mini_batches(
            samples,
            num_prompts=self.num_prompts,
            num_epochs=self.num_epochs,
            shuffle_seed=None if self.shuffle_seed is None else (self.shuffle_seed, step),
        ):
            yield accumulate(
                mini_batch,
                objective,
                self.stepper,
                self.batching,
                loss_agg_mode=self.loss_agg_mode,
                max_length=self.max_length,
            )
