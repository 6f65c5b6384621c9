"""The lines of a file, read once from front to back and afterwards anywhere."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self

from rlgym_llm.errors import DataError
from rlgym_llm.rows.file_format import FileFormat, file_format
from rlgym_llm.rows.json_text import to_json_line
from rlgym_llm.rows.parquet import read_parquet
from rlgym_llm.rows.row import Reject, Row

__all__ = ["LONGEST_LINE", "Line", "RowFile"]

LONGEST_LINE: Final = 64 << 20
"""Bytes of a line above which it is passed over unread: memory stays bounded."""
_MOST_AT_ONCE: Final = 16 << 20
_BOM: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line that is not blank."""

    number: int
    """Of a JSONL file its line, of a parquet file its row; from 1."""
    offset: int
    data: bytes
    """Cut after `LONGEST_LINE` bytes."""


class RowFile:
    """A file of JSON lines, or of parquet; a context manager.

    The rows of a parquet file are written as lines into a temporary file as `lines` reads them, so
    that each can be found again without its whole row group. Raises DataError for other files.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        kind = file_format(self.path)
        if not self.path.is_file():
            what = (
                "this is a folder: name one of its files" if self.path.is_dir() else "no such file"
            )
            raise DataError(what, path=path)
        if kind not in (FileFormat("jsonl"), FileFormat("parquet")):
            what = "only plain .jsonl and .parquet are browsed; rlgym data convert makes one"
            raise DataError(what, path=path)
        self.is_parquet = kind.name == "parquet"
        try:
            self._file: IO[bytes] = (
                tempfile.TemporaryFile() if self.is_parquet else self.path.open("rb")  # noqa: SIM115
            )
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", path=path) from error
        self._lock = threading.Lock()

    def lines(self) -> Iterator[Line]:
        """All lines, in order. Raises DataError where a parquet file is broken."""
        return self._spilled_lines() if self.is_parquet else self._file_lines()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes of a line that `lines` gave before; b"" once the file is closed."""
        with self._lock:
            if self._file.closed:
                return b""
            return os.pread(self._file.fileno(), length, offset)

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> Iterator[bytes]:
        """`read` for every place; lines that stand close together are fetched in one go."""
        if not offsets:
            return
        start = min(offsets)
        span = max(map(sum, zip(offsets, lengths, strict=True))) - start
        if span > min(2 * sum(lengths), _MOST_AT_ONCE):
            yield from map(self.read, offsets, lengths)
            return
        data = self.read(start, span)
        for offset, length in zip(offsets, lengths, strict=True):
            yield data[offset - start : offset - start + length]

    def close(self) -> None:
        """Closes the file; what was written for a parquet file is gone then."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _file_lines(self) -> Iterator[Line]:
        number = 0
        with self.path.open("rb") as file:
            offset = file.tell()
            while data := file.readline(LONGEST_LINE):
                number += 1
                rest = data
                while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                    rest = file.readline(LONGEST_LINE)
                skipped = len(_BOM) if number == 1 and data.startswith(_BOM) else 0
                if data.strip():
                    yield Line(number, offset + skipped, data[skipped:])
                offset = file.tell()

    def _spilled_lines(self) -> Iterator[Line]:
        offset = 0
        for number, row in read_parquet(self.path):
            data = _as_line(row)
            with self._lock:
                if self._file.closed:
                    return
                self._file.write(data)
                self._file.flush()
            yield Line(number, offset, data)
            offset += len(data)


def _as_line(row: Row | Reject) -> bytes:
    assert not isinstance(row, Reject), "parquet rows are whole"
    try:
        return to_json_line(row)
    except (ValueError, TypeError):  # NaN, bytes: for looking at, their text will do
        return json.dumps(dict(row), default=_text).encode() + b"\n"


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
