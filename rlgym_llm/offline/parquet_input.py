"""Parquet files as chunks: read once, in order, and handed to workers as small arrow files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlgym_llm.errors import DataError, UserError
from rlgym_llm.offline.chunks import Chunk
from rlgym_llm.rows.json_text import to_json
from rlgym_llm.rows.parquet import check_columns

__all__ = ["first_rows", "open_parquet", "parquet_chunks", "piece_path", "piece_rows", "row_json"]

_MOST_ROWS = 4096

RowKey = Callable[[Mapping[str, Any], int], str | None]
"""The group that a row belongs to; None where it is no row that can be scored."""


def open_parquet(path: str | Path) -> Any:
    """The file, whatever wrote it. Raises DataError where it is none, UserError without pyarrow."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UserError("parquet needs pyarrow: pip install 'rlgym-llm[data]'") from error
    try:
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        reason = str(error).partition("\n")[0]
        raise DataError(f"bad parquet: {reason}", path=path) from error
    check_columns(file.schema_arrow.names, path)
    return file


def first_rows(path: str, count: int) -> list[dict[str, Any]]:
    """The first rows of the file."""
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=count):
            return list(batch.to_pylist())
    return []


def parquet_chunks(
    path: str,
    folder: Path,
    *,
    file: int,
    index: int,
    chunk_bytes: int,
    done: set[str],
    limit: int | None = None,
    row_key: RowKey | None = None,
) -> Iterator[Chunk]:
    """Walks the file in pieces of about ``chunk_bytes``; memory is that of a few of them.

    The rows of a piece that is not ``done`` are in the file `piece_path` when its chunk is given
    out. With ``row_key`` a piece ends where the group changes.
    """
    import pyarrow as pa

    with open_parquet(path) as source:
        num_rows = _rows_per_chunk(source.metadata, chunk_bytes)
        pending: Any = None
        start = 0
        left = math.inf if limit is None else limit
        try:
            for batch in source.iter_batches(batch_size=num_rows):
                table = pa.Table.from_batches([batch.slice(0, int(min(left, len(batch))))])
                left -= len(table)
                pending = table if pending is None else pa.concat_tables([pending, table])
                cut = len(pending) if row_key is None else _last_change(pending, start, row_key)
                if cut:
                    chunk = Chunk(
                        index=index,
                        file=file,
                        start=start,
                        end=start + cut,
                        first_line=start + 1,
                        num_lines=cut,
                    )
                    _write_piece(pending.slice(0, cut), folder, chunk, done)
                    yield chunk
                    pending, index, start = pending.slice(cut), index + 1, start + cut
                if left <= 0:
                    break
        except (OSError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            reason = str(error).partition("\n")[0]
            raise DataError(f"bad parquet behind row {start}: {reason}", path=path) from error
        if pending is not None and len(pending):
            end = start + len(pending)
            chunk = Chunk(
                index=index,
                file=file,
                start=start,
                end=end,
                first_line=start + 1,
                num_lines=len(pending),
            )
            _write_piece(pending, folder, chunk, done)
            yield chunk


def piece_path(folder: Path, chunk: Chunk) -> Path:
    """Where the rows of a chunk wait for a worker."""
    return folder / f"{chunk.name}.arrow"


def piece_rows(folder: Path, chunk: Chunk) -> list[dict[str, Any]]:
    """The rows of a chunk; integers beside nulls stay integers."""
    import pyarrow as pa

    with pa.OSFile(str(piece_path(folder, chunk)), "rb") as file, pa.ipc.open_file(file) as reader:
        return list(reader.read_all().to_pylist())


def row_json(row: Mapping[str, Any]) -> bytes:
    """The row as strict JSON: dates as text, a number that is not finite as null.

    Raises ValueError for what JSON cannot carry, such as bytes.
    """
    try:
        return to_json(row).encode()
    except TypeError as error:
        raise ValueError(str(error)) from error
    except ValueError:
        return to_json(_finite(row)).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _rows_per_chunk(metadata: Any, chunk_bytes: int) -> int:
    sizes = (metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    row_bytes = sum(sizes) / max(1, metadata.num_rows)
    return max(1, min(_MOST_ROWS, int(chunk_bytes / max(1.0, row_bytes))))


def _last_change(table: Any, start: int, row_key: RowKey) -> int:
    """Where the table's last group begins, so that rows to come may join it; 0 if it is all one."""
    last: str | None = None
    for row in range(len(table) - 1, -1, -1):
        key = row_key(table.slice(row, 1).to_pylist()[0], start + row + 1)
        if key is not None:
            if last is not None and key != last:
                return row + 1
            last = key
    return 0


def _write_piece(table: Any, folder: Path, chunk: Chunk, done: set[str]) -> None:
    if chunk.name in done:
        return
    import pyarrow as pa

    path = piece_path(folder, chunk)
    draft = path.with_suffix(".arrow.tmp")
    schema = table.schema.remove_metadata()
    with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(table.replace_schema_metadata(None))
    draft.replace(path)
