"""Rows of any known file and layout into a file of another, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any, Literal

from rlgym_llm.counted import counted
from rlgym_llm.errors import DataError
from rlgym_llm.layouts.layout import Layout, LayoutName, recognise
from rlgym_llm.layouts.targets import TARGETS
from rlgym_llm.rows.beside import beside
from rlgym_llm.rows.column_types import Columns, RowTypes, columns_of
from rlgym_llm.rows.file_format import FileFormat, file_format
from rlgym_llm.rows.json_array import write_json_array
from rlgym_llm.rows.json_text import to_json, to_json_line
from rlgym_llm.rows.jsonl import write_jsonl
from rlgym_llm.rows.new_file import check_new, new_file
from rlgym_llm.rows.open_bytes import pack
from rlgym_llm.rows.parquet import write_parquet
from rlgym_llm.rows.row import Reject, Row, RowStream

__all__ = [
    "Conversion",
    "ConversionReport",
    "OnBadLine",
    "Source",
    "convert",
]

OnBadLine = Literal["error", "skip", "set-aside"]
"""What becomes of a row that cannot be used: it ends the conversion, is left out and told of, or is
written to a file beside the output."""

_FIRST_ROWS = 100
"""So many rows are looked at to recognise a layout."""
_SHOWN_REJECTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from; read twice where the output is parquet."""

    name: str
    """The file, or an address such as ``hf:openai/gsm8k``: what errors name."""
    rows: Callable[[], RowStream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What to read, what to write, and how."""

    sources: tuple[Source, ...]
    out: Path
    to: str | None = None
    """A name in `TARGETS`; None leaves the columns as they stand."""
    layout: LayoutName | None = None
    """The layout of the sources; None recognises each one's."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    on_bad_line: OnBadLine = "error"
    batch_rows: int = 1024
    """Rows of a parquet row group, at most."""
    overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionReport:
    """What was done."""

    num_rows: int
    """Rows written."""
    num_rejects: int
    rejects: tuple[str, ...]
    """The first rejects, as ``file:line: reason``."""
    layouts: Mapping[str, Layout]
    """What was recognised, by source."""
    json_columns: tuple[str, ...] = ()
    """Parquet columns that hold JSON text, since their rows differ in type."""


def convert(
    job: Conversion, track: Callable[[Iterable[Any], str], Iterable[Any]] | None = None
) -> ConversionReport:
    """Converts; the output appears whole or not at all, in the order of the sources.

    ``track(rows, label)`` may pass the rows on and show how far they are. Memory holds a batch.
    Raises DataError, with file and line, for what cannot be read, a bad row under ``error``, no
    row at all, an output that exists, and columns that are missing or ambiguous.
    """
    kind = file_format(job.out)
    set_aside = beside(job.out, "rejects.jsonl")
    is_replaced = job.out.exists()
    for source in job.sources:
        if Path(source.name).exists() and set_aside.resolve() == Path(source.name).resolve():
            raise DataError(f"would be replaced by the rejects of {job.out}", path=source.name)
    check_new(job.out, overwrite=job.overwrite)
    if job.on_bad_line == "set-aside":
        check_new(set_aside, overwrite=job.overwrite)
    track = track or (lambda rows, _: rows)
    columns: Columns = ()
    if kind.name == "parquet":
        types = RowTypes()
        for row in track(_Rows(job, kind, lambda *_: None), "reading types"):
            types.see(row)
        target = TARGETS[job.to] if job.to else None
        columns = columns_of(
            types,
            exact=target is None or target.is_exact,
            types=target.types if target and types.count else None,
        )
    with ExitStack() as stack:
        rejects = _Rejects(stack, set_aside, job)
        file = stack.enter_context(new_file(job.out, overwrite=job.overwrite))
        rows = _Rows(job, kind, rejects.take)
        num_rows = _write(file, kind, track(rows, "writing"), columns, job.batch_rows)
        if not num_rows:
            raise DataError(f"there is no row to write{rejects.told()}", path=job.out)
    may_drop = is_replaced or job.on_bad_line == "set-aside"
    if job.overwrite and may_drop and not rejects.count:
        set_aside.unlink(missing_ok=True)  # those of an earlier output of this name
    return ConversionReport(
        num_rows=num_rows,
        num_rejects=rejects.count,
        rejects=tuple(rejects.shown),
        layouts=rows.layouts,
        json_columns=tuple(column.name for column in columns if column.is_json),
    )


class _Rejects:
    """Takes bad rows as the policy says; the file for them is opened with the first."""

    def __init__(self, stack: ExitStack, path: Path, job: Conversion) -> None:
        self._stack = stack
        self._path = path
        self._job = job
        self._file: IO[bytes] | None = None
        self.count = 0
        self.shown: list[str] = []

    def told(self) -> str:
        """The rejects in brackets, for an error; empty where there are none."""
        if not self.shown:
            return ""
        return f" ({counted(self.count, 'bad row')}, first: {self.shown[0]})"

    def take(self, source: str, reject: Reject) -> None:
        self.count += 1
        if len(self.shown) < _SHOWN_REJECTS:
            self.shown.append(str(reject.error(source)))
        if self._job.on_bad_line != "set-aside":
            return
        if self._file is None:
            opened = new_file(self._path, overwrite=self._job.overwrite)
            self._file = self._stack.enter_context(opened)
        told = {"file": source, "line": reject.line, "reason": reject.reason, "text": reject.text}
        self._file.write(to_json_line(told))


class _Rows:
    """The rows to write: JSON texts, or dictionaries for parquet; iterated once."""

    def __init__(
        self, job: Conversion, kind: FileFormat, on_reject: Callable[[str, Reject], None]
    ) -> None:
        self._job = job
        self._is_parquet = kind.name == "parquet"
        self._on_reject = on_reject
        self._index = count()
        self.layouts: dict[str, Layout] = {}

    def __iter__(self) -> Iterator[Any]:
        for source in self._job.sources:
            yield from self._of(source)

    def _of(self, source: Source) -> Iterator[Any]:
        for line, row in self._laid_out(source):
            if isinstance(row, Reject):
                if self._job.on_bad_line == "error":
                    raise row.error(source.name)
                self._on_reject(source.name, row)
            elif self._is_parquet:
                yield row
            else:
                try:
                    yield to_json(row)
                except (ValueError, TypeError) as error:
                    bad = Reject(line=line, reason=f"cannot be written as JSON: {error}")
                    if self._job.on_bad_line == "error":
                        raise bad.error(source.name) from error
                    self._on_reject(source.name, bad)

    def _laid_out(self, source: Source) -> RowStream:
        """The rows in the target's layout, one or several for each row of the source."""
        stream = source.rows()
        if self._job.to is None:
            yield from stream
            return
        target = TARGETS[self._job.to]
        first = list(islice(stream, _FIRST_ROWS))
        good = [row for _, row in first if not isinstance(row, Reject)]
        if not good:
            yield from first
            yield from stream
            return
        layout = self.layouts[source.name] = recognise(
            good,
            self._job.mapping,
            name=self._job.layout,
            needs=target.needs,
            path=source.name,
        )
        for line, row in chain(first, stream):
            if isinstance(row, Reject):
                yield line, row
                continue
            try:
                made = [
                    target.to_row(sample, layout, next(self._index))
                    for sample in layout.to_samples(row, line)
                ]
            except ValueError as error:
                yield line, Reject(line=line, reason=str(error), text=_readable(row))
                continue
            for out in made:
                yield line, out


def _readable(row: Row) -> str | None:
    try:
        return to_json(row)
    except (ValueError, TypeError):
        return None


def _write(
    file: IO[bytes], kind: FileFormat, rows: Iterable[Any], columns: Columns, batch_rows: int
) -> int:
    if kind.name == "parquet":
        return write_parquet(file, rows, columns, batch_rows=batch_rows)
    with pack(file, kind.packing) as packed:
        write: Callable[[IO[bytes], Iterable[str]], int]
        write = write_jsonl if kind.name == "jsonl" else write_json_array
        return write(packed, rows)
