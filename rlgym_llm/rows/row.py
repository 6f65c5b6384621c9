"""What a reader yields: rows with their numbers, and for a bad one what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlgym_llm.errors import DataError

__all__ = ["NumberedRow", "Reject", "Row", "RowStream"]

Row = Mapping[str, Any]
"""One row of a data file: its columns by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A row that cannot be used, and why.

    >>> str(Reject(line=3, reason="bad JSON").error("rows.jsonl"))
    'rows.jsonl:3: bad JSON'
    """

    line: int
    """Line of a JSONL file, row of a parquet file or element of an array; from 1."""
    reason: str
    text: str | None = None
    """The line as it stands, where there is one."""

    def error(self, path: str | Path) -> DataError:
        """The error for whoever stops at a bad row."""
        return DataError(self.reason, path=path, line=self.line)


NumberedRow = tuple[int, Row | Reject]
"""A line or row number, from 1, and what stands there."""

RowStream = Iterator[NumberedRow]
"""Raises DataError, with file and line, where the file itself is broken."""
