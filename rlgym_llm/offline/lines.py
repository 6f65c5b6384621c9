"""Lines of JSON, read strictly: a row, or why it is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from json.scanner import make_scanner
from pathlib import Path
from typing import Any, NoReturn

from rlgym_llm.offline.chunks import LONGEST_LINE, Chunk

__all__ = ["BadLine", "BadRowError", "chunk_lines", "parse_row"]

_BOM = b"\xef\xbb\xbf"
_LONGEST_SHOWN = 500


class BadRowError(ValueError):
    """Why a line is no row that can be scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that was set aside."""

    file: str
    line: int
    reason: str
    text: str
    """How it begins; what is no UTF-8 is escaped."""

    @classmethod
    def of(cls, file: str, line: int, reason: str, data: bytes) -> BadLine:
        """The line as it goes into the file of rejects."""
        shown = data[:_LONGEST_SHOWN].decode("utf-8", "backslashreplace")
        return cls(file=file, line=line, reason=reason, text=shown)


def chunk_lines(path: str | Path, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """The lines of a chunk that are not blank, with their numbers; line ends are taken off."""
    with Path(path).open("rb") as file:
        file.seek(chunk.start)
        size = chunk.end - chunk.start
        data = file.read(size if chunk.num_lines > 1 else min(size, LONGEST_LINE))
    if chunk.first_line == 1:
        data = data.removeprefix(_BOM)
    for number, line in enumerate(data.split(b"\n"), start=chunk.first_line):
        if line and not line.isspace():
            yield number, line.strip()


def parse_row(line: bytes) -> dict[str, Any]:
    r"""The JSON object of a line. Raises BadRowError, saying why, for anything else.

    Strictly JSON: UTF-8, one object, no NaN and no infinity, no key twice.

    >>> parse_row(b'{"id": 1, "score": NaN}')
    Traceback (most recent call last):
        ...
    rlgym_llm.offline.lines.BadRowError: bad JSON: NaN is not JSON
    """
    if len(line) >= LONGEST_LINE:
        raise BadRowError(f"longer than {LONGEST_LINE >> 20} MiB")
    try:
        text = line.decode()
        row, end = _scan(text, 0)
        if end != len(text):
            row = _DECODER.decode(text)  # white space around it, or the error that tells
    except StopIteration as error:
        raise BadRowError(f"bad JSON: Expecting value at column {error.value + 1}") from None
    except json.JSONDecodeError as error:
        raise BadRowError(f"bad JSON: {error.msg} at column {error.colno}") from None
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
