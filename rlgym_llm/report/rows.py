"""The few rows of a scored file that a report shows, fetched without reading the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlgym_llm.errors import DataError
from rlgym_llm.offline.settings import file_format
from rlgym_llm.rows.column_types import note_to_columns

__all__ = ["Spot", "fetch_rows"]


class Spot(NamedTuple):
    """Where a row of the output stands, as the summary says."""

    row: int
    """From 0."""
    offset: int
    """Of JSON lines, in bytes."""
    length: int


def fetch_rows(path: str | Path, spots: Iterable[Spot]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows with their numbers, in the order of the file.

    Raises DataError where the file is not the one that the summary was made of.
    """
    wanted = sorted(set(spots))
    if not Path(path).is_file():
        raise DataError("no such file", path=path)
    found = _parquet_rows if file_format(path) == "parquet" else _json_rows
    return found(Path(path), wanted)


def _json_rows(path: Path, wanted: list[Spot]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open("rb") as file:
        for spot in wanted:
            file.seek(spot.offset)
            try:
                yield spot.row, json.loads(file.read(spot.length))
            except ValueError as error:
                raise _changed(path, spot) from error


def _parquet_rows(path: Path, wanted: list[Spot]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        as_json, _ = note_to_columns(file.schema_arrow.metadata)
        left = iter(wanted)
        spot = next(left, None)
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            here: list[int] = []
            while spot is not None and spot.row < end:
                here.append(spot.row)
                spot = next(left, None)
            if here:
                table = file.read_row_group(group).take(pa.array([row - start for row in here]))
                for number, row in zip(here, table.to_pylist(), strict=True):
                    for name in as_json & row.keys():
                        row[name] = None if row[name] is None else json.loads(row[name])
                    yield number, row
            start = end
        if spot is not None:
            raise _changed(path, spot)


def _changed(path: Path, spot: Spot) -> DataError:
    return DataError(
        f"row {spot.row} is not where the summary says: the file has changed since it was scored",
        path=path,
    )
