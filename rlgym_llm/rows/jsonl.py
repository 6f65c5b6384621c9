"""JSON lines: one object a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO

from rlgym_llm.rows.json_row import BadRowError, parse_row
from rlgym_llm.rows.open_bytes import Packing, open_bytes
from rlgym_llm.rows.row import Reject, Row, RowStream

__all__ = ["parse_line", "read_jsonl", "write_jsonl"]

_BOM = b"\xef\xbb\xbf"


def read_jsonl(path: Path, packing: Packing = "") -> RowStream:
    """The rows of a file in UTF-8, with or without byte order mark, any line ends, blank lines."""
    with open_bytes(path, packing) as file:
        for line, data in enumerate(file, start=1):
            if line == 1 and data.startswith(_BOM):
                data = data[len(_BOM) :]
            if not data.isspace() and data:
                yield line, parse_line(data, line)


def parse_line(data: bytes, line: int) -> Row | Reject:
    r"""The object of one line, or what is wrong with it.

    >>> parse_line(b'{"id": 1}\r\n', 1)
    {'id': 1}
    >>> parse_line(b"[3]", 4).reason
    'expected a JSON object, got list'
    """
    try:
        return parse_row(data)
    except BadRowError as error:
        text = data.decode(errors="replace").rstrip("\r\n")
        return Reject(line=line, reason=str(error), text=text)


def write_jsonl(file: IO[bytes], texts: Iterable[str]) -> int:
    """Writes JSON texts, one a line, and returns how many."""
    count = 0
    for text in texts:
        file.write(text.encode() + b"\n")
        count += 1
    return count
