"""Find a function of the user's by its path: ``file.py:name`` or ``module:name``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlgym_llm.errors import UserError, did_you_mean
from rlgym_llm.file_module import import_file

__all__ = ["load_function"]


def load_function(path: str) -> Callable[..., Any]:
    """The function at ``path``; its file runs once a process.

    Raises UserError where the path has no such form, the file is missing or does not import, or it
    has no function of that name.

    >>> load_function("math:sqrt")(9)
    3.0
    """
    where, _, name = path.rpartition(":")
    if not where or not name:
        raise UserError(f"reward function path {path!r} is no 'file.py:name' or 'module:name'")
    module = _import(where)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, item in vars(module).items() if inspect.isfunction(item)]
        hint = did_you_mean(name, functions)
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
