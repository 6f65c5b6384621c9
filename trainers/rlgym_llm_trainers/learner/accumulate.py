"""One optimizer step: a mini-batch's gradient, summed over its micro-batches and the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rlgym_llm.errors import PluginError, RlgymError
from rlgym_llm_trainers.algorithms.aggregate import Reduce
from rlgym_llm_trainers.algorithms.metrics import Metric, merge
from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.denominators import Denominators
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.stepper import Stepper

__all__ = ["Objective", "Share", "accumulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a micro-batch gives to a step."""

    loss: Tensor
    """To call ``backward`` on, whatever it is: the ranks go through that together."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """As partial sums."""
    error: RlgymError | None = None
    """Why there is no loss; what is called so then stands in for it."""


Objective = Callable[[Batch, Reduce], Share]


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
    An objective that fails, on whatever rank, raises RlgymError on all of them, with its words.
    """
    ranks, denominators = batching.ranks, Denominators.of(samples)
    stepper.begin()
    metrics: list[Mapping[str, Metric]] = []
    faults: list[str] = []
    error: RlgymError | None = None
    for number, (part, batch) in enumerate(batching.parts(samples), start=1):
        share = objective(
            batch, denominators.reduce(part, mode=loss_agg_mode, max_length=max_length)
        )
        error = error or share.error
        value = float(share.loss.detach())
        if not math.isfinite(value):
            faults.append(f"loss {value} in micro-batch {number} of rank {ranks.rank}")
        # Whatever it is: the other ranks are in their own, which waits for this one.
        share.loss.backward()  # type: ignore[no-untyped-call]
        metrics.append(share.metrics)
    gathered = ranks.gather((merge(metrics), faults, error and str(error)))
    if error is not None and ranks.world_size == 1:
        raise error
    for rank, (_, _, said) in enumerate(gathered):
        if said is not None:
            raise PluginError(f"rank {rank}: {said}")
    stepper.refuse([fault for _, found_there, _ in gathered for fault in found_there])
    return merge(of_rank for of_rank, _, _ in gathered)
