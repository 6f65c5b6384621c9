"""What differs between two settings, leaf by leaf."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["differences", "differences_text"]

_LONGEST = 80
_MOST_SHOWN = 3
_ABSENT = object()


def differences(old: Any, new: Any) -> list[str]:
    """``key.path: old -> new`` of every value of two JSON data that is not the same in both.

    Values are cut at 80 characters; of two lists of one length the elements are compared.

    >>> differences({"a": {"weight": 1.0, "n": 4}}, {"a": {"weight": 0.5, "n": 4}, "seed": 0})
    ['a.weight: 1.0 -> 0.5', 'seed: absent -> 0']
    """
    return [
        f"{'.'.join(path)}: {_shown(then)} -> {_shown(now)}" for path, then, now in _walk(old, new)
    ]


def differences_text(old: Any, new: Any) -> str:
    """The first of the `differences` in one line, and how many more there are.

    >>> differences_text([1, 2, 3, 4, 5], [0, 0, 0, 0, 5])
    '0: 1 -> 0; 1: 2 -> 0; 2: 3 -> 0; and 1 more'
    """
    found = differences(old, new)
    more = len(found) - _MOST_SHOWN
    return "; ".join(found[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _walk(old: Any, new: Any, path: Sequence[str] = ()) -> Iterator[tuple[Sequence[str], Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), (*path, str(key)))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, pair in enumerate(zip(old, new, strict=True)):
            yield from _walk(*pair, (*path, str(place)))
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
