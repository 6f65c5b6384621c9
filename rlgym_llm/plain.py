"""What a reward put into a score's ``info``, as data that JSON carries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["json_data", "plain"]

_MOST_DEPTH = 20
_SAFE = frozenset({str, bool, type(None)})  # not all numbers can be written
_TEXT = frozenset({str})

_dumps = json.JSONEncoder(allow_nan=False).encode


def json_data(info: dict[Any, Any]) -> dict[Any, Any]:
    """``info`` itself where JSON carries it, else as `plain` makes it.

    Raises KeyboardInterrupt and MemoryError alone.

    >>> json_data({"tags": {"sum"}})
    {'tags': ['sum']}
    """
    # Most are so, and millions of rows pass here: no Python loop over them.
    if _SAFE.issuperset(map(type, info.values())) and _TEXT.issuperset(map(type, info)):
        return info
    try:
        _dumps(info)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:  # the boundary around objects of any kind, and their methods
        found = plain(info)
        return found if isinstance(found, dict) else {"info": found}
    return info


def plain(value: Any) -> Any:
    """The value out of dictionaries, lists, texts, finite numbers, booleans and None alone.

    Arrays become lists, sets sorted ones, what is not finite None, and everything else, or what
    lies deeper than 20 containers, its text. Raises KeyboardInterrupt and MemoryError alone.

    >>> plain({"shape": (2, 3), 7: 1 + 2j})
    {'shape': [2, 3], '7': '(1+2j)'}
    >>> cycle = {}
    >>> cycle["self"] = cycle
    >>> plain(cycle)
    {'self': '(dict, which holds itself)'}
    """
    return _plain(value, ())


def _plain(value: Any, within: tuple[int, ...]) -> Any:
    """The same of a value that lies in the containers of those ids."""
    try:
        if id(value) in within:
            return f"({type(value).__name__}, which holds itself)"
        return _converted(value, within)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        return f"({type(value).__name__}, which cannot be shown)"


def _converted(value: Any, within: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        number = int(value)
        str(number)  # Python refuses to write one of thousands of digits
        return number
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if len(within) < _MOST_DEPTH:
        inner = (*within, id(value))
        if isinstance(value, Mapping):
            return {_key(key): _plain(item, inner) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(item, inner) for item in value]
        if isinstance(value, set | frozenset):  # whose order differs by process
            return sorted([_plain(item, inner) for item in value], key=repr)
        if hasattr(value, "tolist"):  # arrays and their scalars
            return _plain(value.tolist(), inner)
    kind = type(value)
    if all(getattr(kind, name) is getattr(object, name) for name in ("__str__", "__repr__")):
        return f"({kind.__name__})"  # its text would be an address
    return str(value)


def _key(key: Any) -> str:
    """A key as JSON writes it, where it writes it."""
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(_plain(key, ()))
