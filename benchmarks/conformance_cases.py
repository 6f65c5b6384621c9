"""Random rollouts for the benchmarks of conformance, laid out as the peer wants and as we do.

A peer's streams are of responses, with numbers everywhere. Ours are of whole sequences: three
columns of a prompt more, and NaN on every token that was not sampled, which must never be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["NUM_SEEDS", "PROMPT", "Rollouts", "draw", "on_response", "whole"]

NUM_SEEDS = 5
PROMPT = 3
_LENGTH = 14


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """N rollouts of several prompts, as a peer holds them: streams [N, T] of responses, float64."""

    mask: Tensor  # [N, T], float64
    """1 on sampled tokens; observations leave gaps, padding a tail."""
    group_ids: np.ndarray[Any, Any]  # [N], strings
    outcomes: Tensor  # [N]
    token_rewards: Tensor  # [N, T]
    """The outcome on the last sampled token, and something on others."""
    values: Tensor  # [N, T]
    logprobs: Tensor  # [N, T]
    old_logprobs: Tensor  # [N, T]
    ref_logprobs: Tensor  # [N, T]
    advantages: Tensor  # [N, T]
    """Different on every token; never 0 on a sampled one."""

    @property
    def outcome_rewards(self) -> Tensor:
        """The outcomes alone, each on the last sampled token [N, T]."""
        places = torch.arange(self.mask.shape[1]) + 1
        is_last = (self.mask * places).argmax(-1)
        rewards = torch.zeros_like(self.mask)
        rewards[torch.arange(len(rewards)), is_last] = self.outcomes
        return rewards

    @property
    def sequence_advantages(self) -> Tensor:
        """One advantage a sequence, on each of its tokens [N, T]."""
        return self.advantages[:, :1].expand_as(self.mask).contiguous()

    def rows(self, kept: Any) -> Rollouts:
        """Some of the rollouts, by a bool array [N]."""
        kept = np.asarray(kept)
        index = torch.from_numpy(np.flatnonzero(kept))
        found = {
            name: value[kept] if isinstance(value, np.ndarray) else value[index]
            for name, value in vars(self).items()
        }
        return Rollouts(**found)


def draw(
    seed: int,
    sizes: Sequence[int] = (4, 2, 3, 5, 6),
    *,
    equal_lengths: bool = False,
    spread: float = 0.5,
    empty_rows: int = 0,
) -> Rollouts:
    """Groups of these sizes in interleaved order; the first group's outcomes are all equal.

    ``spread`` is the standard deviation of log-ratios, ``empty_rows`` how many rollouts have no
    sampled token at all.
    """
    rng = np.random.default_rng(seed)
    groups = np.repeat([f"prompt {place}" for place in range(len(sizes))], sizes)
    outcomes = np.round(rng.normal(size=len(groups)), 3)
    outcomes[: sizes[0]] = 0.3
    order = rng.permutation(len(groups))
    mask = np.zeros((len(groups), _LENGTH))
    for row in range(len(groups)):
        length = 9 if equal_lengths else int(rng.integers(4, _LENGTH + 1))
        mask[row, :length] = 1
        if not equal_lengths and rng.random() < 0.6:  # an observation between two turns
            start = int(rng.integers(1, length - 2))
            mask[row, start : start + int(rng.integers(1, length - start))] = 0
    mask[len(groups) - empty_rows :] = 0
    advantages = rng.normal(size=mask.shape)
    advantages += 0.05 * np.sign(advantages)
    logprobs = -3 * rng.random(mask.shape) - 1e-3

    def moved() -> Any:
        return np.minimum(logprobs - spread * rng.normal(size=mask.shape), -1e-3)

    drawn = Rollouts(
        mask=torch.from_numpy(mask),
        group_ids=groups[order],
        outcomes=torch.from_numpy(outcomes[order]),
        token_rewards=torch.zeros(mask.shape, dtype=torch.float64),
        values=torch.from_numpy(rng.normal(size=mask.shape)),
        logprobs=torch.from_numpy(logprobs),
        old_logprobs=torch.from_numpy(moved()),
        ref_logprobs=torch.from_numpy(moved()),
        advantages=torch.from_numpy(advantages),
    )
    sparse = rng.normal(size=mask.shape) * (rng.random(mask.shape) < 0.3)
    rewards = (drawn.outcome_rewards + torch.from_numpy(sparse)) * drawn.mask
    return Rollouts(**{**vars(drawn), "token_rewards": rewards})


def whole(stream: Tensor, mask: Tensor) -> Tensor:
    """A stream of responses [N, T] as we hold it [N, 3 + T]: NaN wherever nothing was sampled."""
    prompt = stream.new_full((len(stream), PROMPT), torch.nan)
    return torch.cat([prompt, torch.where(mask.bool(), stream.detach(), torch.nan)], dim=1)


def on_response(stream: Any, mask: Tensor) -> Tensor:
    """A stream of theirs [N, T] or ours [N, 3 + T] on responses, 0 off the mask."""
    values = torch.as_tensor(stream).detach()[:, -mask.shape[1] :]
    return torch.where(mask.bool(), values, 0.0)
