"""Losses over [B, T] streams: pure functions that return a scalar and its metrics.

A policy loss is ``loss(inputs, *, reduce, **options) -> LossOutput``. ``reduce`` is
`aggregate.aggregate` with the step's denominators bound, the same one for every term, so that a
coefficient means the same beside short and long answers. Its keyword-only options are its
configuration, see `binding.bind_policy_loss`.
"""

from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs, WeightedReduce
from rlgym_llm_trainers.algorithms.losses.output import LossOutput
from rlgym_llm_trainers.algorithms.losses.ppo_clip import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.regularizers import entropy_loss, kl_loss

__all__ = [
    "LossOutput",
    "PolicyLossInputs",
    "WeightedReduce",
    "entropy_loss",
    "kl_loss",
    "ppo_clip_loss",
]
