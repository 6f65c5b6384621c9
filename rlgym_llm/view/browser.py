"""The rows of one file behind a few questions: pages of rows, one row, and its siblings."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.errors import DataError
from rlgym_llm.rows.parquet import num_parquet_rows, read_parquet
from rlgym_llm.view.meaning import (
    Meaning,
    component_names,
    meaning_of_rows,
    meaning_of_summary,
    summary_beside,
)
from rlgym_llm.view.row_file import RowFile
from rlgym_llm.view.row_index import STATUSES, RowIndex, parse_line
from rlgym_llm.view.row_json import MOST_CHARS, bad_json, brief_json, row_json
from rlgym_llm.view.row_query import FAILED_COMPONENT, RowQuery, holds_text, select
from rlgym_llm.view.shown import BAD_LINE, read_shown

__all__ = ["RowBrowser"]

PAGE_ROWS: Final = 50
_MOST_SIBLINGS: Final = 32
_SIBLING_CHARS: Final = 6_000
_LOOKED_AT: Final = 200
_SEARCH_ROWS: Final = 256
_SEARCH_S: Final = 1.5
"""How long one call looks for a text before it says how far it came."""


class RowBrowser:
    """Opens a file for browsing; a context manager. Answers are JSON data.

    ``mapping`` names columns as ``{"completion": "response"}``, where they are not recognised.
    Raises DataError for a file that cannot be browsed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, str] | None = None,
        score_column: str = "rlgym",
    ) -> None:
        self._file = RowFile(path)
        try:
            rows = self._first_rows()
            summary = None if mapping else summary_beside(path)
            if summary is not None:
                self._meaning: Meaning = meaning_of_summary(summary)
            else:
                self._meaning = meaning_of_rows(
                    rows, path=path, mapping=mapping, score_column=score_column
                )
        except BaseException:
            self._file.close()
            raise
        names = component_names(rows, self._meaning.score_column)
        self.index = RowIndex(self._file, self._meaning, names)
        self.index.start()
        self._selected = lru_cache(maxsize=4)(self._select)

    def close(self) -> None:
        """Ends the reading and closes the file."""
        self.index.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def about(self) -> dict[str, Any]:
        """The file, how much of it is read, its components, and the statuses there are."""
        self.index.wait(1, timeout_s=10)
        records = self.index.records()
        counts = np.bincount(records["status"], minlength=len(STATUSES)).tolist()
        statuses = {name: n for name, n in zip(STATUSES, counts, strict=True) if n}
        if failed := int(records["has_failed"].sum()):
            statuses[FAILED_COMPONENT] = failed
        return {
            "name": self._file.path.name,
            "path": str(self._file.path.absolute()),
            "num_rows": len(records),
            "is_done": self.index.is_done,
            "part_read": self._part_read(records),
            "error": self.index.error,
            "components": list(self.index.components),
            "statuses": statuses,
            "layouts": [layout.name for layout in self._meaning.layouts],
        }

    def page(self, query: RowQuery, start: int = 0, num_rows: int = PAGE_ROWS) -> dict[str, Any]:
        """Rows that fit, from the ``start``-th of those that fit but for the text.

        ``at`` is where to go on, and so is ``next``, which is None at the end. A search for a text
        stops after a second or two, with what it found so far.
        """
        self.index.wait(start + num_rows, timeout_s=2)
        rows = self._selected(query, self.index.num_rows)
        records = self.index.records()
        may_hold = _line_filter(query.text)
        began = time.monotonic()
        found: list[dict[str, Any]] = []
        at = start
        is_late = False
        while at < len(rows) and len(found) < num_rows and not is_late:
            block = rows[at : at + _SEARCH_ROWS]
            offsets, lengths = (records[name][block].tolist() for name in ("offset", "length"))
            lines = self._file.read_many(offsets, lengths)
            for number, data in zip(block.tolist(), lines, strict=True):
                at += 1
                if may_hold(data):
                    brief = self._brief(number, records[number], data, query.text)
                    if brief is not None:
                        found.append(brief)
                        if len(found) == num_rows:
                            break
            is_late = query.text is not None and time.monotonic() - began > _SEARCH_S
        return {
            "rows": found,
            "at": at,
            "next": at if at < len(rows) else None,
            "num_fitting": len(rows),
            "num_rows": len(records),
            "is_done": self.index.is_done,
        }

    def row(self, number: int, *, is_whole: bool = False) -> dict[str, Any]:
        """One row in full; long texts are cut unless ``is_whole``. Raises LookupError."""
        most = sys.maxsize if is_whole else MOST_CHARS
        return self._full(number, self.index.records(), most=most)

    def siblings(self, number: int) -> dict[str, Any]:
        """The rows of the same group, this one among them, as far as they are read."""
        records = self.index.records()
        self._check(number, records)
        group = records["group"][number]
        if group == 0:
            return {"rows": [], "num_siblings": 0}
        rows = np.flatnonzero(records["group"] == group)
        first = rows[:_MOST_SIBLINGS].tolist()
        if number not in first:
            first[-1] = number
        return {
            "rows": [
                self._full(row, records, most=_SIBLING_CHARS, with_spans=False) for row in first
            ],
            "num_siblings": len(rows),
        }

    def _first_rows(self) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        if self._file.is_parquet:
            return [row for _, row in islice(read_parquet(self._file.path), _LOOKED_AT)]  # type: ignore[misc]
        bad: DataError | None = None
        for line in islice(self._file.lines(), _LOOKED_AT):
            try:
                rows.append(parse_line(line.data))
            except DataError as error:
                bad = bad or DataError(str(error), path=self._file.path, line=line.number)
        if bad is not None and not rows:
            raise bad
        return rows

    def _select(self, query: RowQuery, num_rows: int) -> NDArray[np.int64]:
        return select(self.index.records()[:num_rows], query, self.index.components)

    def _data(self, record: Any) -> bytes:
        return self._file.read(int(record["offset"]), int(record["length"]))

    def _brief(
        self, number: int, record: Any, data: bytes, text: str | None
    ) -> dict[str, Any] | None:
        """None where the text is not in the row after all."""
        status = STATUSES[record["status"]]
        try:
            row = parse_line(data)
        except DataError:
            if text is not None and text.casefold() not in data.decode(errors="replace").casefold():
                return None
            row = {}
        else:
            if text is not None and not holds_text(row, text):
                return None
        completion = ""
        if status != BAD_LINE:
            try:
                completion = read_shown(row, int(record["line"]), self._meaning).completion
            except DataError:
                status = BAD_LINE
        if status == BAD_LINE:
            completion = data[:400].decode(errors="replace")
        return brief_json(number, record, status, completion)

    def _full(self, number: int, records: NDArray[Any], **how: Any) -> dict[str, Any]:
        self._check(number, records)
        record = records[number]
        line = int(record["line"])
        data = self._data(record)
        try:
            shown = read_shown(parse_line(data), line, self._meaning)
        except DataError as error:
            return bad_json(number, line, str(error), data)
        return row_json(number, line, shown, self._meaning.components, **how)

    def _check(self, number: int, records: Sequence[Any] | NDArray[Any]) -> None:
        if not 0 <= number < len(records):
            raise LookupError(f"there is no row {number}: {len(records):,} are read")

    def _part_read(self, records: NDArray[Any]) -> float:
        if self.index.is_done or not len(records):
            return 1.0 if self.index.is_done else 0.0
        if self._file.is_parquet:
            return len(records) / max(1, num_parquet_rows(self._file.path))
        last = records[-1]
        size = self._file.path.stat().st_size
        return min(1.0, float(last["offset"] + last["length"]) / max(1, size))


def _line_filter(text: str | None) -> Callable[[bytes], bool]:
    """Whether it is worth while to parse a line: plain ASCII stands in JSON as it is."""
    if text is None or not text.isascii() or not text.isprintable() or set(text) & set('"\\/'):
        return lambda data: True
    wanted = text.lower().encode()
    return lambda data: wanted in data.lower()
