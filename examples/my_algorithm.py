"""A plugin in one file: a policy loss and an advantage estimator of your own.

    rlgym-train --plugin examples/my_algorithm.py --algorithm.adv_estimator median \
        --actor.policy_loss spo --actor.policy_loss_kwargs.width 0.3 --actor.ppo_epochs 2

Both are functions; what they are given and give back is in docs/write_an_algorithm.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs, Advantages
from rlgym_llm_trainers.algorithms.metrics import Metric

from rlgym_llm import hookimpl
from rlgym_llm.specs import AdvantageSpec, Kind, PolicyLossSpec, Spec

if TYPE_CHECKING:  # they import torch, for which `rlgym-train --help` need not wait
    from rlgym_llm_trainers.algorithms.aggregate import Reduce
    from rlgym_llm_trainers.algorithms.losses import LossOutput, PolicyLossInputs


def median(inputs: AdvantageInputs) -> Advantages:
    """``A = R - median`` of the scored siblings: one wild reward moves no other's advantage.

    >>> median(AdvantageInputs.of_rewards([0, 1, 9], ["g"] * 3)).advantages[:, 0].tolist()
    [-1.0, 0.0, 8.0]
    """
    rewards, group_ids = inputs.sequence_rewards, np.array(inputs.group_ids)
    values, is_valid = np.zeros(len(rewards)), np.zeros(len(rewards), dtype=bool)
    for group_id in set(inputs.group_ids):
        siblings = (group_ids == group_id) & inputs.is_scored
        if siblings.sum() >= 2:  # a lone one has nothing to be compared with
            values[siblings] = rewards[siblings] - np.median(rewards[siblings])
            is_valid |= siblings
    return Advantages.broadcast(inputs, values, is_valid)


def spo(inputs: PolicyLossInputs, *, reduce: Reduce, width: float = 0.2) -> LossOutput:
    """``L = -A r + |A| (r - 1)^2 / (2 width)``: SPO, a pull back in place of a clip (2401.16025).

    r = exp(logprob - old_logprob). A = 2, r = 1.1, width .2: -2.2 + .05 = -2.15; the gradient in r
    is 0 at r = 1.2. Metric: ``actor/spo_outside``, the share of tokens beyond the width.
    """
    from rlgym_llm_trainers.algorithms.aggregate import masked
    from rlgym_llm_trainers.algorithms.losses import LossOutput

    if not width > 0:
        raise ValueError(f"width must be above 0, got {width}")
    mask, logprobs = inputs.mask, masked(inputs.logprobs, inputs.mask)
    old = logprobs if inputs.old_logprobs is None else masked(inputs.old_logprobs, mask)
    away = (logprobs - old.detach()).exp() - 1
    advantages = masked(inputs.advantages, mask)
    losses = advantages.abs() * away.square() / (2 * width) - advantages * (1 + away)
    outside = (away.abs() > width).sum().item()
    return LossOutput(
        loss=reduce(losses, mask),
        metrics={"actor/spo_outside": Metric.mean(outside, mask.sum().item())},
    )


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """What this plugin brings."""
    if kind is Kind.ADVANTAGE:
        entry_point = f"{__name__}:median"
        return [AdvantageSpec(name="median", entry_point=entry_point, needs_groups=True)]
    if kind is Kind.POLICY_LOSS:
        return [PolicyLossSpec(name="spo", entry_point=f"{__name__}:spo")]
    return []
