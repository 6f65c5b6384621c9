"""The `Score` of whatever a reward returned."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Mapping, Sequence, Set
from itertools import islice
from numbers import Real
from typing import Any

from rlgym_llm.errors import describe, one_line
from rlgym_llm.plain import json_data
from rlgym_llm.scorers.call import BoundReward
from rlgym_llm.scorers.failed_score import error_text, failed_score
from rlgym_llm.scores import FAILED, Score, ScoreStatus, StepScore
from rlgym_llm.types import Rollout
from rlgym_llm.unchecked import unchecked

__all__ = ["WrongListError", "listed", "read_score"]

_score = unchecked(Score)  # of values that are checked here, or were where the reward made them


def read_score(
    bound: BoundReward, rollout: Rollout, value: Any, seconds: float, taken: float
) -> Score:
    """A score of Python's own numbers and JSON data, or one of status ``error`` that says why not.

    ``taken`` is what the deadline is held against. Raises only what the bound reward lets pass
    and KeyboardInterrupt, whatever the value's own methods do.
    """
    if bound.timeout_s is not None and taken > bound.timeout_s:
        error = f"took {taken:.3g} s of its {bound.timeout_s:g} s"
        return failed_score(bound, rollout, error, seconds, ScoreStatus.TIMEOUT)
    if type(value) is float and math.isfinite(value):
        return _score(bound.name, value, ScoreStatus.OK, (), {}, None, seconds)
    if value is None:
        return _score(bound.name, None, ScoreStatus.NOT_APPLICABLE, (), {}, None, seconds)
    try:
        if isinstance(value, Score):
            return _adopted(bound, rollout, value, seconds)
        return _score(bound.name, _to_float(value), ScoreStatus.OK, (), {}, None, seconds)
    except bound.passes:
        raise
    except BaseException as failure:
        return failed_score(bound, rollout, describe(failure), seconds)


class WrongListError(TypeError):
    """What a call for several rollouts returned is not one score for each of them."""


def listed(values: Any, num_rollouts: int) -> Sequence[Any]:
    """The values that a call for several rollouts returned, as many as there are rollouts.

    Raises WrongListError for another number of values, and for what is no sequence of scores: a
    dictionary, a set and a text can be walked through too, but not in the order of the rollouts.
    Raises what walking through the values does.

    >>> listed((0.5, None), 2)
    [0.5, None]
    >>> listed({"r0": 0.5, "r1": 1.0}, 2)
    Traceback (most recent call last):
        ...
    rlgym_llm.scorers.read_score.WrongListError: returned a dict; return a list of 2 scores, one \
a rollout
    """
    if type(values) is list and len(values) == num_rollouts:
        return values
    if isinstance(values, Mapping | Set | str | bytes | Score | None) or not hasattr(
        values, "__iter__"
    ):
        _discard(values)
        raise WrongListError(
            f"returned a {type(values).__name__}; return a list of {num_rollouts} scores, one a "
            "rollout"
        )
    found = list(islice(iter(values), num_rollouts + 1))  # a generator may have no end
    if len(found) != num_rollouts:
        num_found = len(found) if len(found) < num_rollouts else f"more than {num_rollouts}"
        if hasattr(values, "__len__"):
            num_found = len(values)
        raise WrongListError(f"returned {num_found} scores for {num_rollouts} rollouts")
    return found


def _adopted(bound: BoundReward, rollout: Rollout, score: Score, seconds: float) -> Score:
    """The reward's own `Score` under the name that it has here."""
    value, status, words = score.value, score.status, score.error
    steps, info = score.steps, score.info
    if value is not None and type(value) is not float:
        value = _to_float(value)
    if status is not ScoreStatus.OK and status in FAILED:
        words = error_text(bound, rollout, one_line(words or status))
    elif words is not None:
        words = one_line(words)
    if type(info) is not dict:
        info = _info(info)
    if info:
        info = json_data(info)
    if steps or type(steps) is not tuple:
        steps = _steps(steps, len(rollout.text))
    return _score(bound.name, value, status, steps, info, words, seconds)


def _info(info: Any) -> dict[str, Any]:
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise TypeError(f"its info is a {type(info).__name__}; it is a mapping")
    return dict(info)


def _steps(steps: Any, num_chars: int) -> tuple[StepScore, ...]:
    """The steps with Python's own numbers, all of them within the text."""
    if steps is None:
        return ()
    found = tuple(_step(step, number) for number, step in enumerate(steps, start=1))
    for step in found:
        if step.char_end > num_chars:
            span = f"[{step.char_start}, {step.char_end})"
            raise ValueError(f"a step covers {span} of a text of {num_chars} characters")
    return found


def _step(step: Any, number: int) -> StepScore:
    if not isinstance(step, StepScore):
        raise TypeError(f"step {number} is a {type(step).__name__}; it is a StepScore")
    if type(step.value) is float and type(step.char_start) is type(step.char_end) is int:
        return step
    return StepScore(
        value=_to_float(step.value),
        char_start=operator.index(step.char_start),
        char_end=operator.index(step.char_end),
    )


def _to_float(value: Any) -> float:
    """A finite Python float; raises TypeError, ValueError, and what the value's methods raise."""
    kind = type(value).__name__
    if not isinstance(value, Real) and hasattr(value, "item"):
        try:
            value = value.item()  # array scalars; arrays of one
        except (Exception, SystemExit) as failure:  # an array of several raises here
            raise TypeError(f"returned a {kind} that is no number: {describe(failure)}") from None
    if not isinstance(value, Real):
        _discard(value)
        kind = type(value).__name__
        raise TypeError(f"returned a {kind}; a reward returns a float, a bool, a Score or None")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"returned {number}; a reward is finite, or None")
    return number


def _discard(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # or Python warns, long after, that nobody awaited it
