"""pydantic's complaints in one line: which key, given where, what was expected, what came."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlgym_llm.errors import did_you_mean
from rlgym_llm.secrets_mask import MASK, is_secret_name
from rlgym_llm.yaml_text import dump_value

__all__ = ["explain_invalid"]

_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def explain_invalid(
    invalid: ValidationError, tree: Mapping[str, Any], sources: Mapping[tuple[str, ...], str]
) -> str:
    """One line for all that is wrong, each problem once.

    ``tree`` is what was validated, ``sources`` says how each of its paths was spelled: the result
    reads like ``--actor.optim.lr: expected a number, got 'fast'``.
    """
    problems: dict[tuple[str, ...], str] = {}
    for error in invalid.errors(include_url=False):
        path, value = _follow(error["loc"], tree)
        problems.setdefault(path, f"{_label(path, sources)}: {_reason(error, path, value)}")
    return "; ".join(problems.values())


def _follow(loc: tuple[int | str, ...], tree: Any) -> tuple[tuple[str, ...], Any]:
    """The part of pydantic's location that is in the data (the rest names types), and its value."""
    path: tuple[str, ...] = ()
    for part in loc:
        if isinstance(tree, Mapping) and part in tree:
            path, tree = (*path, str(part)), tree[part]
        elif isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree):
            tree = tree[part]
        else:
            break
    return path, tree


def _label(path: tuple[str, ...], sources: Mapping[tuple[str, ...], str]) -> str:
    return sources.get(path) or ".".join(path) or "configuration"


def _reason(error: ErrorDetails, path: tuple[str, ...], value: Any) -> str:
    kind = error["type"]
    if kind in ("value_error", "extra_forbidden"):
        return error["msg"].removeprefix("Value error, ")
    got = f"got {_shown(path, value)}"
    if kind == "missing":
        return f"too few values, {got}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"expected {words} {error['ctx'][bound]:g}, {got}"
    if kind == "literal_error" and isinstance(value, str):
        expected = error["ctx"]["expected"]
        hint = did_you_mean(value, re.findall(r"'([^']*)'", expected))
        return f"expected {expected}, {got}{hint}"
    expected = _EXPECTED.get(kind.partition("_")[0], "")
    if kind == "too_long":
        return f"too many values, {got}"
    expected = expected or error["msg"].removeprefix("Input should be ")
    return f"expected {expected}, {got}"


def _shown(path: tuple[str, ...], value: Any) -> str:
    if any(is_secret_name(part) for part in path):
        return MASK
    return repr(value) if isinstance(value, str) else dump_value(value)
