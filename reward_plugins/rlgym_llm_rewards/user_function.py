"""Find a function of the user's by its path: ``file.py:name`` or ``module:name``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlgym_llm.errors import UserError, did_you_mean
from rlgym_llm.file_module import import_named
from rlgym_llm.rewards import Reward

__all__ = ["check_arguments", "load_function"]

_MAX_SHOWN = 10
"""Functions of a file that an error lists."""


def load_function(path: str) -> Callable[..., Any]:
    """The function at ``path``; its file runs once a process.

    Raises UserError where the path has no such form, the file is missing or does not import, or
    what has that name in it is no function: nothing, a class, or a `Reward`.

    >>> load_function("math:sqrt")(9)
    3.0
    """
    where, _, name = path.rpartition(":")
    if not where or not name:
        raise UserError(f"reward function path {path!r} is no 'file.py:name' or 'module:name'")
    module = _import(where)
    function = getattr(module, name, None)
    if isinstance(function, Reward) or (
        isinstance(function, type) and issubclass(function, Reward)
    ):
        raise UserError(
            f"{path} is a Reward, no function: name it in a RewardSpec and give the file with "
            "--plugin"
        )
    if isinstance(function, type):
        raise UserError(
            f"{path} is a class, no function; name a function, or an object with __call__"
        )
    if not callable(function):
        functions = [key for key, item in vars(module).items() if inspect.isfunction(item)]
        hint = did_you_mean(name, functions)
        shown = functions[:_MAX_SHOWN] + ["..."] * (len(functions) > _MAX_SHOWN)
        raise UserError(
            f"{where} has no function {name!r}{hint} (functions: {', '.join(shown) or 'none'})"
        )
    found: Callable[..., Any] = function
    return found


def check_arguments(path: str, function: Callable[..., Any], *names: str) -> None:
    """Raises UserError for a function that cannot be called with those arguments, by position.

    >>> import operator
    >>> check_arguments("operator:neg", operator.neg, "prompt", "steps")
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.UserError: operator:neg is called as (prompt, steps), which it does not \
take: too many positional arguments
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions tell nothing
        return
    called = f"{path} is called as ({', '.join(names)})"
    try:
        signature.bind(*names)
    except TypeError as wrong:
        raise UserError(f"{called}, which it does not take: {wrong}") from None
    if inspect.iscoroutinefunction(function):
        raise UserError(f"{called}, and is an async function; it must be a plain one")


def _import(where: str) -> ModuleType:
    if where.endswith(".py") and not Path(where).is_file():
        raise UserError(f"reward function file {where} does not exist")
    try:
        return import_named(where)
    except (Exception, SystemExit) as failure:
        raise UserError(
            f"reward function file {where} does not import: {type(failure).__name__}: {failure}"
        ) from failure
