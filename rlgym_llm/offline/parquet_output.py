"""The scored rows as parquet: the columns as they were, and the scores as one struct."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlgym_llm.offline.parquet_input import open_parquet
from rlgym_llm.offline.settings import InputFile, OfflineSettings
from rlgym_llm.rows.column_types import Column, RowTypes, columns_of
from rlgym_llm.rows.json_text import to_json
from rlgym_llm.rows.parquet import write_parquet

__all__ = ["keeps_columns", "score_type", "write_output"]

_BATCH_ROWS = 4096


def keeps_columns(settings: OfflineSettings) -> bool:
    """Whether the input's own arrow columns are written again: one parquet file, row for row."""
    files = settings.inputs
    return (
        settings.format == "parquet"
        and len(files) == 1
        and files[0].format == "parquet"
        and not files[0].is_expanded
    )


def write_output(settings: OfflineSettings, components: list[str], lines: Path) -> Path:
    """Writes ``lines``, a file of scored JSON lines, to a parquet file in the work folder.

    Where `keeps_columns`, a line names its row of the input, whose columns come from there, types
    and all; elsewhere the columns get the types that their values have. ``info`` is JSON text.
    """
    draft = settings.work / "output.tmp"
    if keeps_columns(settings):
        _write_beside(settings.inputs[0], settings.score_column, components, lines, draft)
    else:
        _write_rows(settings.score_column, components, lines, draft)
    return draft


def score_type(components: Iterable[str]) -> Any:
    """The arrow type of the score column, the same for every file of these components."""
    import pyarrow as pa

    step = pa.struct({"value": pa.float64(), "start": pa.int64(), "end": pa.int64()})
    component = pa.struct(
        {
            "raw": pa.float64(),
            "weight": pa.float64(),
            "transformed": pa.float64(),
            "contribution": pa.float64(),
            "status": pa.string(),
            "steps": pa.list_(step),
            "info": pa.string(),
            "error": pa.string(),
        }
    )
    return pa.struct(
        {
            "schema_version": pa.int64(),
            "reward": pa.float64(),
            "status": pa.string(),
            "error": pa.string(),
            "components": pa.struct(dict.fromkeys(components, component)),
        }
    )


def _write_beside(
    file: InputFile, column: str, components: list[str], lines: Path, draft: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    scored = _rows(lines, column)
    following = next(scored, None)
    kind = score_type(components)
    start = 0
    with open_parquet(file.path) as source:
        schema = source.schema_arrow.remove_metadata().append(pa.field(column, kind))
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for batch in source.iter_batches(batch_size=_BATCH_ROWS):
                places, cards = [], []
                while following is not None and following["row"] <= start + len(batch):
                    places.append(following["row"] - start - 1)
                    cards.append(following[column])
                    following = next(scored, None)
                start += len(batch)
                if places:
                    kept = batch if len(places) == len(batch) else batch.take(pa.array(places))
                    columns = [*kept.columns, pa.array(cards, kind)]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _write_rows(column: str, components: list[str], lines: Path, draft: Path) -> None:
    types = RowTypes()
    for row in _rows(lines, column):
        del row[column]
        types.see(row)
    columns = (*columns_of(types, exact=False), Column(name=column, type=score_type(components)))
    with draft.open("wb") as file:
        write_parquet(file, _rows(lines, column), columns, batch_rows=_BATCH_ROWS)


def _rows(lines: Path, column: str) -> Iterator[dict[str, Any]]:
    with lines.open("rb") as file:
        for line in file:
            row = json.loads(line)
            card = row[column]
            for part in card["components"].values():
                part["info"] = to_json(part["info"])
                if "steps" in part:
                    part["steps"] = [
                        {"value": value, "start": start, "end": end}
                        for value, start, end in part["steps"]
                    ]
            yield row
