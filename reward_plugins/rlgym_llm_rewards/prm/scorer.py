"""What scores the steps of many rollouts at once, and the simplest one: a function of yours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlgym_llm.inject import prompt_text
from rlgym_llm.types import Rollout
from rlgym_llm_rewards.prm.splitters import Step
from rlgym_llm_rewards.returned_numbers import returned_numbers
from rlgym_llm_rewards.transcript import defuse

__all__ = ["CallableScorer", "Outcome", "StepScorer", "SteppedRollout"]

Outcome = Sequence[float] | Exception
"""One score per step of a rollout, or why this rollout has none; the others are not touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedRollout:
    """A rollout with its steps, of which there is at least one."""

    rollout: Rollout
    steps: tuple[Step, ...]

    def contents(
        self, *, separator: str, mark: str = "", markers: Collection[str] = ()
    ) -> list[str]:
        r"""What each turn says: steps without ``markers``, each with ``separator`` and ``mark``.

        White space at the separator's end parts a step from the next and is not repeated after a
        turn's last. Steps ``a`` and ``b`` with the separator ``" ки\\n"`` read ``a ки\\nb ки``.
        """
        core = separator.rstrip() or separator
        gap = separator[len(core) :]
        said: list[list[str]] = [[] for _ in self.rollout.turns]
        for step in self.steps:
            said[step.turn].append(f"{defuse(step.text, markers)}{core}{mark}")
        return [gap.join(pieces) for pieces in said]


class StepScorer(Protocol):
    """Scores the steps of rollouts."""

    def __call__(self, items: Sequence[SteppedRollout], /) -> list[Outcome]:
        """One outcome per rollout, in order."""
        ...

    def close(self) -> None:
        """Gives back what it holds; safe to call twice."""
        ...


class CallableScorer:
    """``function(prompt, steps) -> list[float]``, called once a rollout with texts."""

    def __init__(self, function: Callable[[str, list[str]], Any]) -> None:
        self._function = function

    def __call__(self, items: Sequence[SteppedRollout], /) -> list[Outcome]:
        """One outcome per rollout, in order."""
        return [self._outcome(item) for item in items]

    def close(self) -> None:
        """Nothing to give back."""

    def _outcome(self, item: SteppedRollout) -> Outcome:
        texts = [step.text for step in item.steps]
        try:
            return returned_numbers(self._function(prompt_text(item.rollout.task), texts))
        except (Exception, SystemExit) as failure:  # of this rollout alone
            return failure if isinstance(failure, Exception) else RuntimeError("called sys.exit")
