"""Reads the JSON value that stands at a place in a text, and says in plain words what is wrong."""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = ["NotJsonError", "json_at"]

_SPACE = re.compile(r"\s*")
_MOST_LEVELS = 100


class NotJsonError(ValueError):
    """No JSON value stands there; the message is for the model."""


def json_at(text: str, start: int) -> tuple[Any, int]:
    r"""The value that begins at ``start``, white space apart, and where it ends.

    Strings may hold line breaks as they are, which models write. Raises NotJsonError, also for
    NaN, for infinities and for what is nested beyond 100 levels.

    >>> json_at('call {"a": [1]} now', 4)
    ({'a': [1]}, 15)
    >>> json_at("{a: 1}", 0)
    Traceback (most recent call last):
    rlgym_llm.tools.json_text.NotJsonError: expecting property name enclosed in double quotes at character 1
    """  # noqa: E501
    match = _SPACE.match(text, start)
    begin = match.end() if match else start
    if begin == len(text):
        raise NotJsonError("nothing stands there")
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        problem = error.msg[:1].lower() + error.msg[1:]
        raise NotJsonError(f"{problem} at character {error.pos - begin}") from None
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
    except ValueError as error:  # such as a number of more digits than Python reads
        raise NotJsonError(str(error).partition(";")[0]) from None
    if not _is_shallow(value):
        raise NotJsonError("it is nested too deeply")
    return value, end


def _is_shallow(value: Any) -> bool:
    """Whether encoders and validators, which recurse, can go through it."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        if not inner:
            return True
        level = inner
    return False


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_refuse)
