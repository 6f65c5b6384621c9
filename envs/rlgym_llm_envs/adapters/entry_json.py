"""Python data as JSON and back, tuples and keys included."""

from __future__ import annotations

from typing import Any

from rlgym_llm.errors import DataError

__all__ = ["from_json", "to_json"]

_TUPLE, _SET, _ITEMS = "__tuple__", "__set__", "__items__"
_MARKS = frozenset((_TUPLE, _SET, _ITEMS))


def to_json(value: Any) -> Any:
    """The value in lists, dictionaries, texts, numbers, booleans and None alone.

    What JSON has no word for is marked, so that `from_json` finds it again: tuples, sets and
    dictionaries whose keys are not texts. NumPy's numbers become Python's. DataError for anything
    else.

    >>> to_json({"grid": ((0, 1), (1, 0))})
    {'grid': {'__tuple__': [{'__tuple__': [0, 1]}, {'__tuple__': [1, 0]}]}}
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and not _MARKS.intersection(value):
            return {key: to_json(item) for key, item in value.items()}
        return {_ITEMS: [[to_json(key), to_json(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, tuple):
        return {_TUPLE: [to_json(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {_SET: sorted((to_json(item) for item in value), key=repr)}
    for kind in (str, bool, int, float):
        if isinstance(value, kind):  # an enumeration's member
            return kind(value)
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return to_json(value.tolist())
    raise DataError(f"a {type(value).__name__} has no place in a task's data: {str(value)[:60]!r}")


def from_json(value: Any) -> Any:
    """The inverse of `to_json`.

    >>> from_json({"__items__": [[0, {"__tuple__": [1, 2]}]]})
    {0: (1, 2)}
    """
    if isinstance(value, list | tuple):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (mark, inner), *_ = value.items()
        if mark == _TUPLE:
            return tuple(from_json(inner))
        if mark == _SET:
            return set(from_json(inner))
        if mark == _ITEMS:
            return {from_json(key): from_json(item) for key, item in inner}
    return {key: from_json(item) for key, item in value.items()}
