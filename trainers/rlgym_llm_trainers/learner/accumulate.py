"""One optimizer step: a mini-batch's gradient, summed over its micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import Reduce
from rlgym_llm_trainers.algorithms.metrics import Metric, merge
from rlgym_llm_trainers.learner.batch import Batch, TrainingSample
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.denominators import Denominators
from rlgym_llm_trainers.learner.stepper import Stepper

__all__ = ["Objective", "accumulate"]

Objective = Callable[[Batch, Reduce], tuple[Tensor, dict[str, Metric]]]
"""A micro-batch's share of the loss, to call ``backward`` on, and its metrics as partial sums."""


def accumulate(
    samples: Sequence[TrainingSample],
    objective: Objective,
    stepper: Stepper,
    batching: Batching,
    *,
    loss_agg_mode: str,
    max_length: int,
) -> dict[str, Metric]:
    """Leaves the mini-batch's gradient on the parameters and returns its metrics.

    Every share is taken with the denominators of the whole, so neither the split nor the order of
    the samples changes the gradient; ``max_length`` is what ``seq-mean-token-sum-norm`` divides by.
    """
    denominators = Denominators.of(samples)
    stepper.begin()
    metrics = []
    for part, batch in batching.parts(samples):
        loss, found = objective(
            batch, denominators.reduce(part, mode=loss_agg_mode, max_length=max_length)
        )
        loss.backward()  # type: ignore[no-untyped-call]
        metrics.append(found)
    return merge(metrics)
