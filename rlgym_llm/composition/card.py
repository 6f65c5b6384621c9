"""The composition of one rollout: its scores in, its score card out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlgym_llm.composition.combine import Combine, combined
from rlgym_llm.composition.gate import Gate
from rlgym_llm.errors import RewardError
from rlgym_llm.reward_config import Const, Soft
from rlgym_llm.scores import FAILED, CardStatus, Component, Score, ScoreCard, ScoreStatus
from rlgym_llm.unchecked import unchecked

__all__ = ["OnError", "OnTruncated", "Term", "compose", "weighted_card"]

# Millions are made, of values that a Score and the lines below have checked.
_component_of, _card = unchecked(Component), unchecked(ScoreCard)

OnError = Literal["mask", "raise", "zero"] | Const
OnTruncated = Literal["keep", "zero", "soft", "mask"] | Soft


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """How one component's score becomes its part of the sum: ``w T(s) prod_j gate_j``."""

    weight: float
    transform: Callable[[float], float] | None = None
    gates: tuple[Gate, ...] = ()
    combine: Combine | None = None
    """Made of other components, and not scored."""
    potential_gamma: float | None = None
    """Discount, where the score's steps are potentials."""

    @property
    def is_shaped(self) -> bool:
        """Whether a score is changed before its weight."""
        return self.transform is not None or self.potential_gamma is not None

    @property
    def is_plain(self) -> bool:
        """Whether a score of its own counts by its weight alone."""
        return self.combine is None and not self.gates and not self.is_shaped


def compose(
    rollout_id: str,
    scores: Mapping[str, Score],
    terms: Mapping[str, Term | float],
    *,
    clip: tuple[float, float] | None = None,
    on_error: OnError = "mask",
    truncated: OnTruncated = "keep",
    columns: Mapping[str, Any] | None = None,
) -> ScoreCard:
    """The card of one rollout: ``R = clip(sum_i w_i T_i(s_i) prod_j gate_ij)`` over what applies.

    ``terms`` come by component name, each after those that it reads; a bare number is a weight
    alone, used as written. None ("not applicable") drops its term; a closed gate makes it 0. A
    failed score never counts as 0 by itself: under ``mask`` the card is ``failed_reward`` and has
    no reward; under ``raise`` RewardError is raised. A component of weight 0 is a metric: it
    changes nothing, not by failing either, but where others read it. Where no weighted component
    applies there is no reward. ``truncated`` is what to do, given that the rollout was cut short;
    ``columns`` are those of the task, for a ``switch``.

    Environment score 8, format bonus 1.5, 200 tokens at -0.01 each (8 + 1.5 - 2 = 7.5):

    >>> scores = {name: Score(name=name, value=value)
    ...           for name, value in [("env", 8.0), ("format", 1.5), ("length", 200.0)]}
    >>> compose("r0", scores, {"env": 1.0, "format": 1.0, "length": -0.01}).reward
    7.5
    """
    components: dict[str, Component] = {}
    failure: Component | None = None
    contributions = []
    for name, term in terms.items():
        if not isinstance(term, Term):
            term = Term(weight=term)
        if term.combine is None:
            score = scores[name]
        else:
            score = _combine(name, term.combine, components, columns or {})
        component = components[name] = _component(score, term, components, on_error, truncated)
        if term.weight == 0:
            continue
        if component.contribution is not None:
            contributions.append(component.contribution)
        elif failure is None and component.status in FAILED:
            failure = component
    reward: float | None = None
    error: str | None = None
    if failure is not None:
        status, error = CardStatus.FAILED_REWARD, failure.error
    elif not contributions:
        status, error = CardStatus.MASKED, "no component with a weight applies to this rollout"
    elif truncated == "mask":
        status, error = CardStatus.MASKED, "the rollout was truncated"
    else:
        status, reward = CardStatus.SCORED, _total(contributions)
        if isinstance(truncated, Soft):
            reward -= truncated.soft
        elif truncated == "soft":
            reward -= 1.0
        if clip is not None:
            reward = min(max(reward, clip[0]), clip[1])
        if not math.isfinite(reward):
            status, error = CardStatus.FAILED_REWARD, f"the composed reward is {reward}"
            reward = None
    return _card(rollout_id, reward, status, components, error)


def weighted_card(
    rollout_id: str, scores: Sequence[Score], weights: Mapping[str, float]
) -> ScoreCard | None:
    """The card that `compose` makes of plain terms, quickly; None where it must take a closer look.

    ``scores`` come in the order of ``weights``.

    >>> scores = [Score(name="env", value=8.0), Score(name="length", value=200.0)]
    >>> weighted_card("r0", scores, {"env": 1.0, "length": -0.01}).reward
    6.0
    """
    components: dict[str, Component] = {}
    contributions = []
    for (name, weight), score in zip(weights.items(), scores, strict=True):
        value = score.value
        if value is None:
            return None
        contribution = weight * value + 0.0  # no -0.0
        if weight:
            contributions.append(contribution)
        components[name] = _component_of(
            value,
            weight,
            value,
            contribution,
            score.status,
            score.steps,
            score.info,
            score.error,
            score.seconds,
        )
    reward = contributions[0] if len(contributions) == 1 else _total(contributions)
    if not contributions or not math.isfinite(reward):
        return None
    return _card(rollout_id, reward, CardStatus.SCORED, components, None)


def _component(
    score: Score,
    term: Term,
    others: Mapping[str, Component],
    on_error: OnError,
    truncated: OnTruncated,
) -> Component:
    """One score with its weight, its transform and its gates."""
    status, error, transformed = score.status, score.error, score.value
    if transformed is not None and term.is_shaped:
        transformed, overflow = _transform(transformed, score, term)
        if overflow is not None:
            status, error = ScoreStatus.ERROR, overflow
    is_open = True
    for gate in term.gates:
        decides = others[gate.on]
        decisive = decides.raw
        if decides.status in FAILED:
            if on_error in ("mask", "raise"):
                # What the gate would have said is unknown, so this term is, too.
                status, transformed = decides.status, None
                error = f"its gate is on component {gate.on!r}, which failed: {decides.error}"
                continue
            decisive = _stand_in(on_error)
        is_open = is_open and gate.is_open(decisive)
    if status in FAILED and is_open:
        if on_error == "raise" and term.weight:
            raise RewardError(error or f"reward {score.name!r} failed")
        if on_error not in ("mask", "raise"):
            transformed = _stand_in(on_error)  # of a raw score, so it goes the way of one
            if term.transform is not None:
                transformed = term.transform(transformed)
    contribution: float | None = None
    if not is_open:
        contribution = transformed = 0.0
    elif transformed is not None:
        contribution = (0.0 if truncated == "zero" else term.weight) * transformed + 0.0  # no -0.0
        if not math.isfinite(contribution):
            status, contribution = ScoreStatus.ERROR, None
            error = f"weight {term.weight:g} makes {transformed:g} overflow"
    return _component_of(
        score.value,
        term.weight,
        transformed,
        contribution,
        status,
        score.steps,
        score.info,
        error,
        score.seconds,
    )


def _stand_in(on_error: OnError) -> float:
    """The raw value that stands for a failed score."""
    return on_error.const if isinstance(on_error, Const) else 0.0


def _transform(value: float, score: Score, term: Term) -> tuple[float | None, str | None]:
    """``T(s)``, or why there is none where there should be."""
    if term.potential_gamma is not None:  # what the discounted differences add up to
        value *= term.potential_gamma ** len(score.steps)
    if term.transform is not None:
        value = term.transform(value)
        if not math.isfinite(value):
            return None, f"its transform makes {score.value} {value}"
    return value, None


def _combine(
    name: str, combine: Combine, others: Mapping[str, Component], columns: Mapping[str, Any]
) -> Score:
    """The combination's raw score, out of components that are composed already."""
    operands = combine.operands
    if combine.switch is not None:
        chosen = combine.switch.choose(columns.get(combine.switch.on))
        operands = () if chosen is None else (chosen,)
    values: dict[str, float | None] = {}
    for operand in operands:
        other = others[operand]
        if other.status in FAILED and other.transformed is None:
            error = f"component {operand!r} failed: {other.error}"
            return Score(name=name, value=None, status=other.status, error=error)
        values[operand] = other.transformed
    value = combined(combine, values)
    if value is None:
        return Score(name=name, value=None, status=ScoreStatus.NOT_APPLICABLE)
    if not math.isfinite(value):
        error = f"component {name!r} combines to {value}"
        return Score(name=name, value=None, status=ScoreStatus.ERROR, error=error)
    return Score(name=name, value=value)


def _total(terms: Sequence[float]) -> float:
    """The exact sum, the same in any order of the terms; infinite where it overflows."""
    try:
        return math.fsum(terms)
    except OverflowError:
        return math.inf
    except ValueError:  # infinities of both signs
        return math.nan
