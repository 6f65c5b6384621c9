"""One optimizer step: a mini-batch's gradient, summed over its micro-batches and the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from rlgym_llm_trainers.algorithms.aggregate import Reduce
from rlgym_llm_trainers.algorithms.metrics import Metric, merge
from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.denominators import Denominators
from rlgym_llm_trainers.learner.sample import TrainingSample
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
    """Leaves the mini-batch's gradient on the parameters and returns its metrics, of all ranks.

    Every share is taken with the denominators of the whole, so neither the split nor the order of
    the samples changes the gradient; ``max_length`` is what ``seq-mean-token-sum-norm`` divides by.
    A loss that is not finite, on whatever rank, keeps the ``stepper`` of every rank from stepping.
    """
    ranks, denominators = batching.ranks, Denominators.of(samples)
    stepper.begin()
    metrics: list[dict[str, Metric]] = []
    faults: list[str] = []
    for number, (part, batch) in enumerate(batching.parts(samples), start=1):
        loss, found = objective(
            batch, denominators.reduce(part, mode=loss_agg_mode, max_length=max_length)
        )
        value = float(loss.detach())
        if not math.isfinite(value):
            faults.append(f"loss {value} in micro-batch {number} of rank {ranks.rank}")
        # Whatever it is: the other ranks are in their own, which waits for this one.
        loss.backward()  # type: ignore[no-untyped-call]
        metrics.append(found)
    gathered = ranks.gather((merge(metrics), faults))
    stepper.refuse([fault for _, found_there in gathered for fault in found_there])
    return merge(of_rank for of_rank, _ in gathered)
