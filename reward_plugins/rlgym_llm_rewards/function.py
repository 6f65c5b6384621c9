"""Reward ``function``: a function out of the user's own file or module."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlgym_llm.errors import UserError
from rlgym_llm.rewards import FunctionReward, RawScore, RewardContext
from rlgym_llm.scores import Score
from rlgym_llm.shims.shared_composer import answer_text
from rlgym_llm.types import Rollout, Task
from rlgym_llm_rewards.returned_numbers import returned_number, returned_sequence
from rlgym_llm_rewards.user_function import load_function

__all__ = ["Function"]

_VERL_PARAMETERS = ("data_source", "solution_str", "ground_truth")
_JUDGED = ("completion", "completions", "rollout", "rollouts", "group")
"""Arguments that hold what is judged, which no option may stand in for."""


@dataclass(frozen=True, kw_only=True)
class Function(FunctionReward):
    """What a function of yours returns, found by ``path``.

    A function with the parameters ``data_source``, ``solution_str`` and ``ground_truth`` is called
    as verl calls its ``compute_score``; where it takes ``extra_info``, it gets the row's column of
    that name, as verl hands it over, or all columns where a row has none. Any other function gets
    its arguments by name as under `rlgym_llm.rewards.reward`, marked with it or not. An
    ``async def`` makes the reward one of backend ``async``. All may return

    - a number: the score;
    - a dictionary with ``score``, whose other entries go to the score's ``info``:
      ``{"score": 0.5, "acc": True}`` is 0.5 with ``info == {"acc": True}``;
    - a pair ``(score, parts)`` of a number and a dictionary, which goes to ``info``;
    - None for "does not apply", or a `Score`.

    Of scope ``group`` and ``batch`` it returns a list of these. A text is no number, and a
    dictionary no list: they are errors. Loads the file at construction; raises UserError where the
    file or the function is missing, or where ``kwargs`` are not its own.
    """

    name = "function"
    range = (-math.inf, math.inf)

    path: str
    """``"file.py:name"`` or ``"module:name"``."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the function, the same at each call; verl's ``reward_kwargs``."""

    def __post_init__(self) -> None:
        function = load_function(self.path)
        declared: dict[str, Any] = {"name": self.name, "range": Function.range}
        judge = None
        if marked := getattr(function, "__rlgym_reward__", None):
            declared = {**marked, "name": self.name}
        elif _parameters(self.path, function).keys() >= set(_VERL_PARAMETERS):
            judge = _from_verl(self.path, function, self.kwargs)
            declared["needs"] = ("answer",)
        if inspect.iscoroutinefunction(function):
            declared["backend"] = "async"
        if judge is None:
            _refuse(self.path, self.kwargs, _JUDGED)
            reading = _read(function, declared.get("scope", "sample"))
            inner = FunctionReward(reading, self.kwargs, **declared)
        else:
            inner = FunctionReward(judge, **declared)
        vars(self).update(vars(inner))
        # verl's signature is called once for every row, so its arguments skip the injection.
        hot = None if judge is None or inner.is_async else judge
        object.__setattr__(self, "_hot", hot)

    def __reduce__(self) -> tuple[Callable[[], Function], tuple[()]]:
        # The function's module is known under no name elsewhere: it is loaded there again.
        return functools.partial(Function, path=self.path, kwargs=dict(self.kwargs)), ()

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The function's value on this rollout."""
        hot: Callable[[Rollout], RawScore] | None = self._hot  # type: ignore[attr-defined]
        if hot is not None:
            return hot(rollout)
        if self.is_async:
            from rlgym_llm_rewards.endpoint import run

            return run(self.ascore(rollout, ctx))
        return super().score(rollout, ctx)


def _parameters(path: str, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in functions tell nothing
        raise UserError(f"{path} does not tell its parameters; wrap it in a function") from None


def _refuse(path: str, kwargs: Mapping[str, Any], given: Collection[str]) -> None:
    """Raises UserError where ``kwargs`` stand in for what each row gives."""
    if taken := [name for name in kwargs if name in given]:
        raise UserError(
            f"reward function {path}: kwargs set {taken[0]!r}, which every row gives of its own; "
            "leave it out"
        )


def _from_verl(
    path: str, function: Callable[..., Any], kwargs: Mapping[str, Any]
) -> Callable[[Rollout], Any]:
    """A function of a rollout that calls ``function`` with verl's names for its columns."""
    _refuse(path, kwargs, (*_VERL_PARAMETERS, "extra_info"))
    parameters = inspect.signature(function).parameters
    takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes_extra_info = takes_rest or "extra_info" in parameters
    known = [*_VERL_PARAMETERS, *(["extra_info"] if takes_extra_info else [])]
    try:
        inspect.signature(function).bind(**dict.fromkeys(known), **kwargs)
    except TypeError as wrong:
        name = path.rpartition(":")[2]
        raise UserError(f"reward function {name!r}: {wrong}") from None

    bound = functools.partial(function, **kwargs) if kwargs else function

    def call(rollout: Rollout) -> Any:
        task = rollout.task
        if task.answer is None:
            raise LookupError("the task has no answer to give as ground_truth")
        turns = rollout.turns
        text = turns[0].completion.text if len(turns) == 1 else rollout.text
        truth = _ground_truth(task)
        if not takes_extra_info:
            return bound(data_source=task.data_source, solution_str=text, ground_truth=truth)
        column = task.info.get("extra_info")
        return bound(
            data_source=task.data_source,
            solution_str=text,
            ground_truth=truth,
            # A copy, for functions write into it.
            extra_info=dict(column if isinstance(column, Mapping) else task.info),
        )

    if not inspect.iscoroutinefunction(function):

        def judge(rollout: Rollout) -> RawScore:
            value = call(rollout)
            return value if type(value) is float else _unpack(value)

        return judge

    async def promise(rollout: Rollout) -> RawScore:
        return _unpack(await call(rollout))

    return promise


def _ground_truth(task: Task) -> Any:
    """The answer; in a row of verl's what its column holds, of which the answer is the text."""
    column = task.info.get("reward_model")
    held = column.get("ground_truth") if isinstance(column, Mapping) else None
    if held is None or isinstance(held, str) or answer_text(held) != task.answer:
        return task.answer
    return held


def _read(function: Callable[..., Any], scope: str) -> Callable[..., Any]:
    """The function with what it returns unpacked, its signature and kind kept."""

    def unpack(values: Any) -> Any:
        if scope == "sample":
            return _unpack(values)
        return [_unpack(value) for value in returned_sequence(values, "scores")]

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        return unpack(function(**arguments))

    @functools.wraps(function)
    async def promise(**arguments: Any) -> Any:
        return unpack(await function(**arguments))

    return promise if inspect.iscoroutinefunction(function) else call


def _unpack(value: Any) -> RawScore:
    """A number out of ``{"score": number, ...}`` or ``(number, {...})``; else as it is."""
    if isinstance(value, Mapping):
        if "score" not in value:
            raise ValueError(f"returned a dictionary without 'score' (keys: {', '.join(value)})")
        rest = {key: item for key, item in value.items() if key != "score"}
        return Score(name=Function.name, value=returned_number(value["score"]), info=rest)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
        return Score(name=Function.name, value=returned_number(value[0]), info=dict(value[1]))
    return value  # type: ignore[no-any-return]
