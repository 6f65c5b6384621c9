"""The frozen records of scoring: what one reward says of a rollout, and what all come to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "FAILED",
    "CardStatus",
    "Component",
    "Score",
    "ScoreCard",
    "ScoreStatus",
    "StepScore",
]


class ScoreStatus(StrEnum):
    """What became of one reward on one rollout."""

    OK = "ok"
    NOT_APPLICABLE = "not_applicable"
    """The reward returned None, or its ``when`` is of other rows: its term drops out."""
    SKIPPED = "skipped"
    """A closed gate spared the call: its term is 0."""
    ERROR = "error"
    """The reward raised, or returned NaN, infinity or something that is no number."""
    TIMEOUT = "timeout"


FAILED = (ScoreStatus.ERROR, ScoreStatus.TIMEOUT)
"""Statuses of a score that was wanted and did not come."""


class CardStatus(StrEnum):
    """Whether a rollout may be learned from."""

    SCORED = "scored"
    FAILED_REWARD = "failed_reward"
    """A reward failed: the rollout leaves the loss and its group's statistics."""
    FAILED_ROLLOUT = "failed_rollout"
    """The episode itself failed before there was anything to score."""
    MASKED = "masked"
    """Left out on purpose, such as a truncated rollout under ``on_truncated: mask``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """What one step (or turn, or token) earned, with the characters of ``rollout.text`` it covers.

    Half-open: step ``"2 + 3 = 5"`` at the start of a text covers [0, 9).
    """

    value: float
    char_start: int
    char_end: int

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a step's value is {self.value}; it is finite")
        if not 0 <= self.char_start <= self.char_end:
            span = f"[{self.char_start}, {self.char_end})"
            raise ValueError(f"a step covers {span}, which is no span")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One reward's raw, unweighted verdict on one rollout.

    ``value`` is None where the reward did not run or does not apply; it is never 0 for a failure.
    NaN and infinity are refused: a reward that computes one has failed.
    """

    name: str
    value: float | None
    status: ScoreStatus = ScoreStatus.OK
    steps: tuple[StepScore, ...] = ()
    """Where the value was earned: shares that add up to it, in the order of the text. Under the
    placement ``potential`` they are the potentials after each step instead."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """JSON data for people and reports."""
    error: str | None = None
    seconds: float = field(default=0.0, compare=False)
    """Wall-clock time of the call, in seconds."""

    def __post_init__(self) -> None:
        if type(self.status) is not ScoreStatus:
            object.__setattr__(self, "status", ScoreStatus(self.status))
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"score {self.name!r} is {self.value}; a score is finite or None")
        if (self.value is None) == (self.status is ScoreStatus.OK):
            raise ValueError(f"score {self.name!r}: value {self.value} under status {self.status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One named term of a composed reward: raw score, weight, and what it added."""

    raw: float | None
    weight: float
    transformed: float | None
    """The raw score after its transform; 0 behind a closed gate; None where nothing was scored."""
    contribution: float | None
    """weight x transformed; 0 for a metric (weight 0); None where nothing was scored."""
    status: ScoreStatus
    steps: tuple[StepScore, ...] = ()
    """The raw score's steps, as the reward gave them."""
    info: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCard:
    """The composed verdict on one rollout, with every component beside it.

    ``reward`` is None exactly where status is not ``scored``: an unscored rollout has no reward,
    rather than a reward of 0.
    """

    rollout_id: str
    reward: float | None
    status: CardStatus
    components: Mapping[str, Component]
    error: str | None = None

    def __post_init__(self) -> None:
        if type(self.status) is not CardStatus:
            object.__setattr__(self, "status", CardStatus(self.status))
        if (self.reward is None) == (self.status is CardStatus.SCORED):
            raise ValueError(f"card of {self.rollout_id}: reward {self.reward}, {self.status}")
