"""The critic's objective: the value loss of one micro-batch and its metrics."""

from __future__ import annotations

from rlgym_llm_trainers.algorithms.aggregate import Reduce
from rlgym_llm_trainers.algorithms.losses import WeightedReduce
from rlgym_llm_trainers.algorithms.losses.value import value_loss
from rlgym_llm_trainers.learner.accumulate import Share
from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.value_scorer import ValueScorer

__all__ = ["value_objective"]


def value_objective(
    scorer: ValueScorer, batch: Batch, reduce: Reduce, *, clip: float | None
) -> Share:
    """The micro-batch's share of the value loss, clipped around the values before the update.

    The batch has ``returns`` and ``values``. Tokens that were rejected as those of another policy
    train no value either; the others count once, whatever their importance weight.
    """
    assert batch.returns is not None, "samples come with returns"
    assert batch.values is not None, "samples come with the values before the update"
    if batch.is_weights is not None:
        reduce = WeightedReduce(reduce, batch.loss_mask)
    output = value_loss(
        scorer(batch), batch.values, batch.returns, batch.accepted_mask, reduce=reduce, clip=clip
    )
    return Share(loss=output.loss, metrics=output.metrics)
