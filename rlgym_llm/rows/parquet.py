"""Parquet in batches of rows, in and out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rlgym_llm.errors import DataError, UserError
from rlgym_llm.rows.column_types import Columns, columns_to_note, note_to_columns
from rlgym_llm.rows.json_text import from_json, to_json
from rlgym_llm.rows.row import Row, RowStream

__all__ = ["check_columns", "num_parquet_rows", "read_parquet", "write_parquet"]

_BATCH_BYTES = 8 << 20
"""A batch's share of the file; as Python objects it is some ten times as large."""
_BATCH_ROWS = 1024


def read_parquet(path: Path) -> RowStream:
    """The rows, numbered from 1, integers beside nulls as integers, whatever wrote the file.

    Foreign schema metadata (pandas', a newer datasets') is passed over; our own note says which
    columns are JSON text and which nulls are keys that are not there. Raises DataError.
    """
    with _open(path) as file:
        check_columns(file.schema_arrow.names, path)
        as_json, absent = note_to_columns(file.schema_arrow.metadata)
        tree = _tree(absent)
        number = 0
        try:
            for batch in _read_batches(file):
                for row in batch.to_pylist():
                    number += 1
                    for name in as_json:
                        row[name] = None if row[name] is None else _Json(row[name])
                    yield number, _without_absent(row, tree) if as_json or tree else row
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            raise _broken(path, error, f" behind row {number}") from error


def check_columns(names: Sequence[str], path: str | Path) -> None:
    """Raises DataError where two columns have one name, for a row can hold only one of them."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"two columns are called {twice[0]!r}", path=path)


def num_parquet_rows(path: Path) -> int:
    """How many rows the file says it holds."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def write_parquet(
    file: IO[bytes], rows: Iterable[Row], columns: Columns, *, batch_rows: int = _BATCH_ROWS
) -> int:
    """Writes the rows, a row group for every batch, and returns how many.

    A batch ends after ``batch_rows`` rows, or before where they are large. Raises DataError where a
    row does not fit the columns.
    """
    pa, pq = _arrow()
    metadata = columns_to_note(columns) or None
    schema = pa.schema([(column.name, column.type) for column in columns], metadata=metadata)
    as_json = [column.name for column in columns if column.is_json]
    names = {column.name for column in columns}
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(rows, batch_rows):
            for row in batch:
                if not row.keys() <= names:
                    unknown = min(row.keys() - names)
                    raise DataError(f"a row has a column {unknown!r} that was not there before")
            stored = [_as_stored(row, as_json) for row in batch] if as_json else batch
            try:
                made = pa.RecordBatch.from_pylist(stored, schema=schema)
            except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
                reason = str(error).partition("\n")[0]
                where = f"rows {count + 1} to {count + len(batch)}"
                raise DataError(f"{where} do not fit their columns: {reason}") from error
            writer.write_batch(made)
            count += len(batch)
    return count


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UserError("parquet needs pyarrow: pip install 'rlgym-llm[data]'") from error
    return pa, pq


def _open(path: Path) -> Any:
    _, pq = _arrow()
    try:
        return pq.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception, where: str = "") -> DataError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return DataError(f"bad parquet{where}: {reason}", path=path)


def _read_batches(file: Any) -> Iterator[Any]:
    """Batches of about `_BATCH_BYTES`, by the sizes that the file states.

    Group by group: what arrow reads of one it keeps until the next is asked for.
    """
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
        num_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
        yield from file.iter_batches(batch_size=num_rows, row_groups=[index])


def _batches(rows: Iterable[Row], batch_rows: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += _size(row)
        if len(batch) >= batch_rows or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(value: Any) -> int:
    """About how many bytes; a list of numbers is not looked through."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], str | dict | list | tuple):
            return sum(map(_size, value))
        return 8 * len(value)
    return 8


def _as_stored(row: Row, as_json: list[str]) -> dict[str, Any]:
    stored = dict(row)
    for name in as_json:
        if name in row:
            try:
                stored[name] = to_json(row[name])
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"column {name!r} cannot be stored as JSON text: {error}"
                ) from error
    return stored


class _Json(str):
    """JSON text that is not read yet: a stored null is no key that is not there."""

    __slots__ = ()


_Tree = dict[str | None, Any]


def _tree(paths: list[tuple[str | None, ...]]) -> _Tree:
    """The paths as nested dictionaries; ``""`` marks where one ends."""
    tree: _Tree = {}
    for path in paths:
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[_END] = True
    return tree


_END = "\0end"


def _without_absent(value: Any, tree: _Tree) -> Any:
    """The value without the keys whose null says that they were not there, JSON text read."""
    if isinstance(value, _Json):
        return from_json(value)
    if isinstance(value, list):
        return [_without_absent(item, tree[None]) for item in value] if None in tree else value
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        node = tree.get(key)
        if node is None:
            kept[key] = from_json(item) if isinstance(item, _Json) else item
        elif item is not None or _END not in node:
            kept[key] = _without_absent(item, node)
    return kept
