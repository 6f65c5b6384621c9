"""Dynamic sampling (DAPO, arXiv 2503.14476): groups without signal are replaced by others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["SamplingAccount", "carries_signal"]


def carries_signal(rewards: Sequence[float | None]) -> bool:
    """Whether siblings can be told apart: at least two are scored, and not all the same.

    Asked of the values, never of a standard deviation: that of equal rewards may round to more
    than 0.

    >>> carries_signal([0.3] * 8), carries_signal([0.3] * 7 + [0.4]), carries_signal([1.0, None])
    (False, True, False)
    """
    scored = {reward for reward in rewards if reward is not None}
    return len(scored) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingAccount:
    """How many prompts a step has sampled, and how many of them it can use.

    >>> account = SamplingAccount(wanted=8).after(num_sampled=8, num_kept=2)
    >>> account.num_missing, account.next_draw
    (6, 24)
    """

    wanted: int
    """Prompts with signal that make a batch."""
    num_sampled: int = 0
    num_kept: int = 0
    num_rounds: int = 0

    def after(self, *, num_sampled: int, num_kept: int) -> SamplingAccount:
        """The account after another round; ValueError where more were kept than sampled."""
        if not 0 <= num_kept <= num_sampled:
            raise ValueError(f"{num_kept} of {num_sampled} prompts cannot be kept")
        return replace(
            self,
            num_sampled=self.num_sampled + num_sampled,
            num_kept=self.num_kept + num_kept,
            num_rounds=self.num_rounds + 1,
        )

    @property
    def num_missing(self) -> int:
        """Prompts with signal that are still wanted."""
        return max(self.wanted - self.num_kept, 0)

    @property
    def next_draw(self) -> int:
        """Prompts to sample next, at the share kept so far; where none was, a batch more.

        2 of 8 kept and 6 missing: 6 / (2 / 8) = 24.
        """
        if not self.num_kept:
            return self.num_missing
        return math.ceil(self.num_missing * self.num_sampled / self.num_kept)
