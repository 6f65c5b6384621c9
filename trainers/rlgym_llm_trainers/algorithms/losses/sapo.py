"""SAPO: a soft gate in the place of the clip (arXiv 2511.20347)."""

from __future__ import annotations

import torch

from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.log_ratio import bounded, token_log_ratio
from rlgym_llm_trainers.algorithms.losses.output import LossOutput, policy_output

__all__ = ["sapo_loss"]


def sapo_loss(
    inputs: PolicyLossInputs, *, reduce: Reduce, tau_pos: float = 1.0, tau_neg: float = 1.05
) -> LossOutput:
    """Minus the advantage times ``4 / tau sigmoid(tau (ratio - 1))`` of each token.

    tau is ``tau_pos`` where A > 0, else ``tau_neg``. At ratio 1 the gradient is that of PPO, -A,
    and it fades smoothly on both sides, faster where tau is larger. Ratio 1, A = 1, tau 1: -2.

    Published with ``actor.loss_agg_mode seq-mean-token-mean``. Metrics: ``actor/pg_loss`` and
    ``actor/ppo_kl``; nothing is clipped.
    """
    if not (tau_pos > 0 and tau_neg > 0):
        raise ValueError(f"tau_pos {tau_pos} and tau_neg {tau_neg} must be above 0")
    mask = inputs.mask.bool()
    advantages = masked(inputs.advantages, mask)
    log_ratio = bounded(token_log_ratio(inputs.logprobs, inputs.old_logprobs, mask))
    tau = torch.where(
        advantages > 0, advantages.new_tensor(tau_pos), advantages.new_tensor(tau_neg)
    )
    gate = 4 / tau * torch.sigmoid(tau * (log_ratio.exp() - 1))
    return policy_output(reduce(-advantages * gate, mask), log_ratio, mask)
