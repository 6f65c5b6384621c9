"""A few numbers for every row of a file: rows are chosen and sorted without reading them."""

from __future__ import annotations

import json
import mmap
import tempfile
import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.errors import DataError, RlgymError
from rlgym_llm.offline.records import hash64
from rlgym_llm.scores import CardStatus
from rlgym_llm.view.meaning import Meaning
from rlgym_llm.view.row_file import LONGEST_LINE, Line, RowFile
from rlgym_llm.view.shown import BAD_LINE, UNSCORED, Facts, read_facts

__all__ = ["STATUSES", "RowIndex", "parse_line", "record_type"]

STATUSES: Final = (*(status.value for status in CardStatus), UNSCORED, BAD_LINE)
"""What ``status`` counts."""
_BLOCKS: Final = (64, 1 << 13)
_BAD: Final = Facts(None, BAD_LINE, {}, False, 0, None)


def record_type(components: Sequence[str]) -> np.dtype[Any]:
    """The record of one row: where it stands, and what it is chosen by; NaN where there is none."""
    fields = [("offset", "<u8"), ("length", "<u4"), ("line", "<u8"), ("reward", "<f8")]
    fields += [("chars", "<u4"), ("status", "u1"), ("has_failed", "u1"), ("group", "<u8")]
    return np.dtype([*fields, ("raw", "<f8", (len(components),))])


class RowIndex:
    """The records of all rows, made by a thread that reads the file from front to back.

    They are kept in a temporary file, so that memory is bounded; `records` gives those that are
    there. The first ones are there at once.
    """

    def __init__(self, file: RowFile, meaning: Meaning, components: Sequence[str]) -> None:
        self.components = tuple(components)
        self.is_done = False
        self.error: str | None = None
        """What ended the reading early."""
        self._meaning = meaning
        self._dtype = record_type(components)
        self._rows = file
        self._store = tempfile.TemporaryFile()  # noqa: SIM115
        self._num_rows = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._read, name="rlgym view index", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self) -> None:
        """Ends the reading and forgets the records."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._store.close()

    @property
    def num_rows(self) -> int:
        """How many rows are read."""
        return self._num_rows

    def records(self) -> NDArray[Any]:
        """The records so far, read-only; they stay valid while more come."""
        with self._changed:
            num_rows = self._num_rows
            if not num_rows or self._store.closed:
                return np.zeros(0, self._dtype)
            size = num_rows * self._dtype.itemsize
            mapped = mmap.mmap(self._store.fileno(), size, prot=mmap.PROT_READ)
        return np.frombuffer(mapped, self._dtype)

    def wait(self, num_rows: int | None = None, timeout_s: float | None = None) -> bool:
        """Waits until so many rows are there, or all; False where it takes longer."""

        def is_there() -> bool:
            enough = num_rows is not None and self._num_rows >= num_rows
            return enough or self.is_done or self._is_closed

        with self._changed:
            return self._changed.wait_for(is_there, timeout_s)

    def _read(self) -> None:
        error = None
        try:
            lines = self._rows.lines()
            size, most = _BLOCKS
            while block := list(islice(lines, size)):
                if not self._add(np.array([self._record(line) for line in block], self._dtype)):
                    return
                size = min(2 * size, most)
        except Exception as wrong:  # the thread's own end: whoever browses is told
            error = str(wrong) if isinstance(wrong, RlgymError) else repr(wrong)
        with self._changed:
            self.error, self.is_done = error, True
            self._changed.notify_all()

    def _add(self, records: NDArray[Any]) -> bool:
        with self._changed:
            if self._is_closed:
                return False
            self._store.write(records.tobytes())
            self._store.flush()
            self._num_rows += len(records)
            self._changed.notify_all()
            return True

    def _record(self, line: Line) -> tuple[Any, ...]:
        try:
            facts = read_facts(parse_line(line.data), line.number, self._meaning)
            raws = tuple(_number(facts.raws.get(name)) for name in self.components)
            reward = _number(facts.reward)
        except (DataError, AttributeError, TypeError, ValueError, OverflowError):
            facts, reward = _BAD, np.nan
            raws = (np.nan,) * len(self.components)
        status = facts.status if facts.status in STATUSES else BAD_LINE
        return (
            line.offset,
            len(line.data),
            line.number,
            reward,
            facts.chars,
            STATUSES.index(status),
            facts.has_failed,
            0 if facts.group is None else hash64(str(facts.group)),
            raws,
        )


def parse_line(data: bytes) -> dict[str, Any]:
    """The row of a line; raises DataError with what is wrong with it."""
    if len(data) >= LONGEST_LINE and not data.endswith(b"\n"):
        raise DataError(f"longer than {LONGEST_LINE >> 20} MiB")
    try:
        row = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"bad JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"expected a JSON object, got {type(row).__name__}")
    return row


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)
