"""Strict JSON: what is read is JSON and nothing else, and so is what is written."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any, Final, NoReturn

__all__ = ["DECODER", "from_json", "to_json", "to_json_line"]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _plain(value: Any) -> Any:
    """What parquet and numpy bring along, as JSON: dates as ISO text, decimals as text."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON data")


# Made once: json.loads and json.dumps build theirs anew for every call with an option.
DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
"""Refuses NaN and the infinities, which are no JSON."""
_READABLE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain)
_ESCAPED: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, default=_plain)


def from_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for what is not JSON, NaN included.

    >>> from_json('{"gold": 3}')
    {'gold': 3}
    """
    try:
        return DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def to_json(value: Any) -> str:
    r"""The value as JSON text in its own script; half a surrogate pair is escaped.

    Raises ValueError for NaN and infinity, TypeError for what JSON cannot carry.

    >>> to_json({"text": "π", "n": None})
    '{"text": "π", "n": null}'
    """
    text = _READABLE.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ESCAPED.encode(value)
    return text


def to_json_line(value: Any) -> bytes:
    r"""`to_json` in UTF-8 with a newline.

    >>> to_json_line([1, 2])
    b'[1, 2]\n'
    """
    try:
        return _READABLE.encode(value).encode() + b"\n"
    except UnicodeEncodeError:
        return _ESCAPED.encode(value).encode() + b"\n"
