"""One JSON array of objects, read element by element."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from rlgym_llm.errors import DataError
from rlgym_llm.rows.json_text import DECODER, to_json
from rlgym_llm.rows.open_bytes import Packing, open_bytes
from rlgym_llm.rows.row import Reject, RowStream

__all__ = ["read_json_array", "starts_array", "write_json_array"]

_CHUNK = 1 << 20
_BLANK = " \t\r\n"


def starts_array(path: Path, packing: Packing = "") -> bool:
    """Whether the first character that is not blank is ``[``."""
    with open_bytes(path, packing) as file:
        head = file.read(4096)
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def read_json_array(path: Path, packing: Packing = "") -> RowStream:
    """The elements of the array, numbered from 1; what is no object is a `Reject`.

    Memory holds one element and a megabyte around it. Raises DataError where the text breaks off
    or is no JSON: behind a syntax error there is no telling where the next element begins.
    """
    number = 0
    with open_bytes(path, packing) as file:
        try:
            for number, element in _elements(_Text(file)):
                if isinstance(element, dict):
                    yield number, element
                else:
                    found = type(element).__name__
                    reason = f"expected a JSON object, got {found}"
                    yield number, Reject(line=number, reason=reason, text=to_json(element))
        except (ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(
                f"bad JSON in element {number + 1} of the array: {reason}", path=path
            ) from error


def write_json_array(file: IO[bytes], texts: Iterable[str]) -> int:
    """Writes JSON texts as one array, an element a line, and returns how many."""
    count = 0
    file.write(b"[")
    for text in texts:
        file.write((",\n" if count else "\n").encode() + text.encode())
        count += 1
    file.write(b"\n]\n")
    return count


class _Text:
    """A window on the text: ``text[at:]`` is what has been read and not yet used."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._is_done = False
        self.text = ""
        self.at = 0

    def more(self) -> bool:
        """Reads on, by as much again as is held (a long element stays linear); False at the end."""
        if self._is_done:
            return False
        data = self._file.read(max(_CHUNK, len(self.text) - self.at))
        self._is_done = not data
        self.text = self.text[self.at :] + self._decode(data, final=self._is_done)
        self.at = 0
        return True

    def peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self.at < len(self.text):
                if self.text[self.at] not in _BLANK:
                    return self.text[self.at]
                self.at += 1
            if not self.more():
                return ""


def _elements(window: _Text) -> Iterator[tuple[int, object]]:
    if window.peek() != "[":
        raise ValueError("the file does not begin with '['")
    window.at += 1
    number = 0
    if window.peek() == "]":
        window.at += 1
    else:
        while True:
            number += 1
            window.peek()
            yield number, _element(window)
            mark = window.peek()
            window.at += 1
            if mark == "]":
                break
            if mark != ",":
                raise ValueError(f"expected ',' or ']', got {mark!r}" if mark else "it breaks off")
    if window.peek():
        raise ValueError("there is more behind the closing ']'")


def _element(window: _Text) -> object:
    while True:
        try:
            element, end = DECODER.raw_decode(window.text, window.at)
        except json.JSONDecodeError as error:
            if not _may_go_on(error, window.text) or not window.more():
                raise
            continue
        # A number that touches the end of the window may go on behind it.
        if end == len(window.text) and window.more():
            continue
        window.at = end
        return element


def _may_go_on(error: json.JSONDecodeError, text: str) -> bool:
    """Whether the text may only break off here; else a slip would read the whole file into memory.

    An open string is reported where it opens, a literal or an escape that is cut where it begins.
    """
    return error.msg.startswith("Unterminated string") or error.pos >= len(text) - len("-Infinity")
