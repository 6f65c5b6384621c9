"""Reward ``exact_match``: 1 where the text is the answer."""

from __future__ import annotations

from dataclasses import dataclass

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout

__all__ = ["ExactMatch"]


@dataclass(frozen=True, kw_only=True)
class ExactMatch(Reward):
    r"""``[text == answer]``: 1.0 where all sampled text equals ``task.answer``, else 0.0.

    With the defaults ``" 42\n"`` matches ``"42"`` and ``"Yes"`` does not match ``"yes"``.
    """

    name = "exact_match"
    needs = ("answer",)

    strip: bool = True
    """Ignore white space around both."""
    casefold: bool = False
    """Ignore case, in any script."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> bool:
        """Whether the texts are equal."""
        return self._normal(rollout.text) == self._normal(rollout.task.answer or "")

    def _normal(self, text: str) -> str:
        if self.strip:
            text = text.strip()
        return text.casefold() if self.casefold else text
