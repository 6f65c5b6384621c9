"""GRPO over steps: every step of a group's rollouts is compared with all the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlgym_llm_trainers.algorithms.advantages.inputs import AdvantageInputs, Advantages, Floats
from rlgym_llm_trainers.algorithms.advantages.siblings import find_siblings, normalize

__all__ = ["grpo_step"]


def grpo_step(
    inputs: AdvantageInputs, *, norm_adv_by_std_in_grpo: bool = True, eps: float = 1e-6
) -> Advantages:
    """``A_t``: the sum of the normalised rewards of the steps that end at t or later (2402.03300).

    A step earns what its tokens do; mean and unbiased std are over all steps of a group. The last
    step reaches to the last sampled token, and a rollout without steps is one step: with rewards
    on the last tokens alone this is `grpo`. All steps equal gives exactly 0.

    Two siblings of two steps each, rewards (1, 0) and (0, 1): mean .5, std .577, so the steps
    count .866, -.866 and -.866, .866, and the tokens 0, -.866 and 0, .866.
    """
    siblings = find_siblings(inputs)
    found = np.zeros(inputs.mask.shape, dtype=np.float64)
    for members in siblings.groups:
        rows = [row for row in members.tolist() if inputs.mask[row].any()]
        steps = [_step_of_token(inputs, row) for row in rows]
        earned = [
            np.bincount(step, weights=inputs.token_rewards[row, inputs.mask[row]])
            for row, step in zip(rows, steps, strict=True)
        ]
        if sum(map(len, earned)) < 2:
            continue
        normalized = normalize(np.concatenate(earned), by_std=norm_adv_by_std_in_grpo, eps=eps)
        parts = np.split(normalized, np.cumsum([len(part) for part in earned])[:-1])
        for row, step, part in zip(rows, steps, parts, strict=True):
            to_go: Floats = np.cumsum(part[::-1])[::-1]
            found[row, inputs.mask[row]] = to_go[step]
    return Advantages.on_tokens(inputs, found, siblings.is_valid, siblings.metrics)


def _step_of_token(inputs: AdvantageInputs, row: int) -> NDArray[np.intp]:
    """The number of the step that each sampled token of the row belongs to, from 0."""
    is_sampled = inputs.mask[row]
    if inputs.step_ends is None:
        is_end = inputs.token_rewards[row, is_sampled] != 0
    else:
        is_end = inputs.step_ends[row, is_sampled]
    num_ended_before = np.cumsum(is_end) - is_end
    steps: NDArray[np.intp] = np.minimum(num_ended_before, max(int(is_end.sum()) - 1, 0))
    return steps
