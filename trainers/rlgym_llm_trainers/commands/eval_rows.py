"""What an evaluation remembers of each rollout: a few numbers, and nothing of its tokens."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from rlgym_llm.compose import is_truncated
from rlgym_llm.rewards import full_mark
from rlgym_llm.scores import FAILED, CardStatus, Component, ScoreCard
from rlgym_llm.types import Rollout, RolloutStatus
from rlgym_llm.votes import vote
from rlgym_llm_trainers.training.run_rewards import Accuracy

__all__ = ["EvalRow", "Judge", "eval_row"]

_MIXED = "accuracy"
"""What judges any member of a mixture, in the rows and the summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """One rollout and its card, in short."""

    rollout_id: str
    group_id: str
    """The task it answers; siblings share it."""
    data_source: str
    status: RolloutStatus
    card_status: CardStatus
    is_truncated: bool
    num_tokens: int
    reward: float | None
    raw: Mapping[str, float | None]
    """The raw score of every component."""
    failed: tuple[str, ...]
    """Components that failed on it."""
    answer: Hashable | None
    """The final answer as a `vote`, None where there is none."""

    @property
    def has_failed(self) -> bool:
        """Whether the episode or one of its rewards failed."""
        return self.status is not RolloutStatus.OK or self.card_status is CardStatus.FAILED_REWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What says right or wrong, by which rollouts become rows.

    In a mixture, what judges a member counts as the one accuracy of all, by its full mark.
    """

    accuracy: Accuracy
    ranges: Mapping[str, tuple[float, float]]
    """Lowest and highest raw score of every component."""

    @property
    def name(self) -> str | None:
        """The name under which rows hold it."""
        return _MIXED if any(self.accuracy.by_env.values()) else self.accuracy.name

    @property
    def right_from(self) -> float:
        """The raw score, under that name, from which an answer is right: the highest there is."""
        return self._full_mark(self.name)

    def row(self, rollout: Rollout, card: ScoreCard) -> EvalRow:
        """The row of a rollout and its card."""
        component = self.accuracy.component(rollout.task)
        right_from = self._full_mark(component)
        row = eval_row(rollout, card, accuracy=component, right_from=right_from)
        if not self.accuracy.by_env:
            return row
        raw = row.raw.get(component) if component is not None else None
        return replace(
            row,
            data_source=self.accuracy.source(rollout.task),
            raw={**row.raw, _MIXED: None if raw is None else raw / right_from},
        )

    def _full_mark(self, component: str | None) -> float:
        return full_mark(self.ranges.get(component or "", (0.0, 1.0)))


def eval_row(
    rollout: Rollout, card: ScoreCard, *, accuracy: str | None, right_from: float
) -> EvalRow:
    """The row of a rollout; a raw ``accuracy`` score of ``right_from`` or more is a right answer.

    What it answers is read from that component's ``info``, as reward ``math`` writes it.
    """
    judged = card.components.get(accuracy) if accuracy else None
    return EvalRow(
        rollout_id=rollout.id,
        group_id=rollout.group_id,
        data_source=rollout.task.data_source,
        status=rollout.status,
        card_status=card.status,
        is_truncated=is_truncated(rollout),
        num_tokens=rollout.num_tokens,
        reward=card.reward,
        raw={name: component.raw for name, component in card.components.items()},
        failed=tuple(n for n, component in card.components.items() if component.status in FAILED),
        answer=None if judged is None else _answer(judged, rollout.text, right_from),
    )


def _answer(judged: Component, text: str, right_from: float) -> Hashable | None:
    return vote(judged.info, text, is_right=judged.raw is not None and judged.raw >= right_from)
