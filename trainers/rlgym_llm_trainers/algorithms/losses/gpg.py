"""GPG: the plain policy gradient (arXiv 2504.02546)."""

from __future__ import annotations

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output

__all__ = ["gpg_loss"]


def gpg_loss(inputs: PolicyLossInputs, *, reduce: Reduce) -> LossOutput:
    """Minus ``A logprob`` of each token: REINFORCE, without ratio and without bound.

    It is the gradient of the policy that sampled, so take one optimizer step a batch
    (``actor.ppo_epochs`` 1 and one mini-batch) or correct for the rest. Log-prob -.5, A = 2: 1.

    The value is no objective to watch. Metrics: ``actor/pg_loss`` and ``actor/ppo_kl``.
    """
    mask = inputs.mask.bool()
    log_ratio = token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask)
    losses = -masked(inputs.advantages, mask) * masked(inputs.logprobs, mask)
    return policy_output(reduce(losses, mask), log_ratio, mask)
