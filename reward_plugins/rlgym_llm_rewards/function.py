"""Reward ``function``: a function out of the user's own file or module."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rlgym_llm.errors import UserError, nearest
from rlgym_llm.file_module import import_file
from rlgym_llm.rewards import FunctionReward, RawScore, Reward, RewardContext, build_reward
from rlgym_llm.types import Rollout, RolloutGroup, Score

__all__ = ["Function"]

_VERL_PARAMETERS = {"data_source", "solution_str", "ground_truth"}


@dataclass(frozen=True, kw_only=True)
class Function(Reward):
    """What a function of yours returns, found by ``path``.

    A function with the parameters ``data_source``, ``solution_str`` and ``ground_truth`` is called
    as verl calls its ``compute_score`` (``extra_info`` too, where it is taken); any other gets its
    arguments by name as under `rlgym_llm.rewards.reward`, marked with it or not. Both may return a
    number or a dictionary with ``score``, whose other entries go to the score's ``info``.

    Loads the file at construction; raises UserError where the file or the function is missing.
    """

    name = "function"
    range = (-math.inf, math.inf)

    path: str
    """``"file.py:name"`` or ``"module:name"``."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the function, the same at each call."""

    def __post_init__(self) -> None:
        inner = _as_reward(_load(self.path), self.kwargs)
        object.__setattr__(self, "_inner", inner)
        for declared in ("version", "scope", "timeout_s", "needs", "range"):
            object.__setattr__(self, declared, getattr(inner, declared))

    def __reduce__(self) -> tuple[Callable[[], Function], tuple[()]]:
        # The function's module is known under no name elsewhere: it is loaded there again.
        return functools.partial(Function, path=self.path, kwargs=dict(self.kwargs)), ()

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The function's value on this rollout."""
        return _unpack(self._inner.score(rollout, ctx))  # type: ignore[attr-defined]

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> Sequence[RawScore]:
        """The function's values on these siblings."""
        values = self._inner.score_group(group, ctx)  # type: ignore[attr-defined]
        return [_unpack(value) for value in values]


def _as_reward(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Reward:
    if hasattr(function, "__rlgym_reward__"):
        return build_reward(function, kwargs)
    if inspect.signature(function).parameters.keys() >= _VERL_PARAMETERS:
        function, kwargs = _from_verl(function, kwargs), {}
    name = getattr(function, "__name__", Function.name)
    return FunctionReward(function, kwargs, name=name, range=Function.range)


def _from_verl(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """The function under our names for what verl calls its own."""
    parameters = inspect.signature(function).parameters
    takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes_extra_info = takes_rest or "extra_info" in parameters

    @functools.wraps(function)
    def call(completion: str, answer: str, data_source: str, info: Mapping[str, Any]) -> Any:
        arguments: dict[str, Any] = {
            "data_source": data_source,
            "solution_str": completion,
            "ground_truth": answer,
        }
        if takes_extra_info:
            arguments["extra_info"] = dict(info)
        return function(**arguments, **kwargs)

    try:
        known = {*_VERL_PARAMETERS, *(["extra_info"] if takes_extra_info else [])}
        inspect.signature(function).bind(**dict.fromkeys(known), **kwargs)
    except TypeError as wrong:
        raise UserError(f"reward function {function.__name__!r}: {wrong}") from None
    del call.__wrapped__  # its own signature is the one to inject
    return call


def _unpack(value: Any) -> RawScore:
    """A number out of ``{"score": number, ...}``; anything else as it is."""
    if not isinstance(value, Mapping):
        return value  # type: ignore[no-any-return]
    if "score" not in value:
        raise ValueError(f"returned a dictionary without 'score' (keys: {', '.join(value)})")
    rest = {key: item for key, item in value.items() if key != "score"}
    return Score(name=Function.name, value=float(value["score"]), info=rest)


def _load(path: str) -> Callable[..., Any]:
    where, _, name = path.rpartition(":")
    if not where or not name:
        raise UserError(f"reward function path {path!r} is no 'file.py:name' or 'module:name'")
    module = _import(where)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, item in vars(module).items() if inspect.isfunction(item)]
        guess = nearest(name, functions)
        hint = f"; did you mean {guess!r}?" if guess else ";"
        raise UserError(
            f"{where} has no function {name!r}{hint} (functions: {', '.join(functions) or 'none'})"
        )
    found: Callable[..., Any] = function
    return found


def _import(where: str) -> ModuleType:
    is_file = where.endswith(".py")
    if is_file and not Path(where).is_file():
        raise UserError(f"reward function file {where} does not exist")
    try:
        return import_file(Path(where)) if is_file else importlib.import_module(where)
    except (Exception, SystemExit) as failure:
        raise UserError(
            f"reward function file {where} does not import: {type(failure).__name__}: {failure}"
        ) from failure
