"""The lines of a chunk, and those of them that are no rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from rlgym_llm.offline.chunks import LONGEST_LINE, Chunk
from rlgym_llm.rows import json_row
from rlgym_llm.rows.json_row import BadRowError

__all__ = ["BadLine", "BadRowError", "chunk_lines", "parse_row"]

_BOM = b"\xef\xbb\xbf"
_LONGEST_SHOWN = 500


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
    lines = map(bytes.strip, data.split(b"\n"))
    return filter(itemgetter(1), enumerate(lines, start=chunk.first_line))


def parse_row(line: bytes) -> dict[str, Any]:
    r"""The JSON object of a line, read as by `rlgym_llm.rows.json_row.parse_row`.

    Raises BadRowError, saying why, for anything else and for a line that is too long.

    >>> parse_row(b'{"id": 1, "score": NaN}')
    Traceback (most recent call last):
        ...
    rlgym_llm.rows.json_row.BadRowError: bad JSON: NaN is not JSON
    """
    if len(line) >= LONGEST_LINE:
        raise BadRowError(f"longer than {LONGEST_LINE >> 20} MiB")
    return json_row.parse_row(line)
