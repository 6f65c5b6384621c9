"""The JSON object of a line, read strictly: a row, or why it is none."""

from __future__ import annotations

import json
from json.scanner import make_scanner
from typing import Any, Final, NoReturn

from orjson import loads as _loads

__all__ = ["BadRowError", "parse_row"]

_FLAT: Final = frozenset({str, int, bool, type(None)})


class BadRowError(ValueError):
    """Why a line is no row."""


def parse_row(line: bytes) -> dict[str, Any]:
    r"""The JSON object of a line. Raises BadRowError, saying why, for anything else.

    Strictly JSON: UTF-8, one object, no NaN and no infinity, no key twice. Columns of the text are
    counted from 1, white space at its ends taken off.

    >>> parse_row(b'{"id": 1}\r\n')
    {'id': 1}
    >>> parse_row(b'{"id": 1, "score": NaN}')
    Traceback (most recent call last):
        ...
    rlgym_llm.rows.json_row.BadRowError: bad JSON: NaN is not JSON
    """
    # Most files hold rows of texts, whole numbers and constants alone, and orjson reads them three
    # times as fast. It takes a key that stands twice, and whole numbers of 65 bits as floats.
    try:
        row = _loads(line)
    except ValueError:
        return _strict_row(line)
    if type(row) is dict:
        kinds = [*map(type, row.values())]
        # A key that stands twice makes more quotes than that, as does a quote within a text.
        num_quotes = 2 * (len(row) + kinds.count(str))
        if line.count(b'"') == num_quotes and _FLAT.issuperset(kinds):
            return row
    return _strict_row(line)


def _strict_row(line: bytes) -> dict[str, Any]:
    try:
        # Without the line's end, or the decoder finds a cut line wrong at column 1 of the next.
        text = line.strip().decode()
        row, end = _scan(text, 0)
        if end != len(text):
            row = _DECODER.decode(text)  # the error that tells what stands behind
    except StopIteration as error:
        raise BadRowError(f"bad JSON: Expecting value at column {error.value + 1}") from None
    except json.JSONDecodeError as error:
        raise BadRowError(f"bad JSON: {error.msg} at column {error.pos + 1}") from None
    except UnicodeDecodeError as error:
        raise BadRowError(f"no UTF-8: {error.reason} at byte {error.start + 1}") from None
    except RecursionError:
        raise BadRowError("bad JSON: nested too deeply") from None
    except ValueError as error:
        raise BadRowError(f"bad JSON: {error}") from None
    if type(row) is not dict:
        raise BadRowError(f"expected a JSON object, got {type(row).__name__}")
    return row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} stands there twice")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)
# What `decode` calls, but that it looks for white space around the value.
_scan: Any = make_scanner(_DECODER)  # type: ignore[arg-type]
