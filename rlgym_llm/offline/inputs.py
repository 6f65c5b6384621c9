"""The files to score, looked at before anything starts: what each holds, and in which columns."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlgym_llm.errors import DataError
from rlgym_llm.layouts.layout import FIELDS, Layout, LayoutName, recognise
from rlgym_llm.offline.chunks import LONGEST_LINE
from rlgym_llm.offline.lines import parse_row
from rlgym_llm.offline.samples import splits_rows
from rlgym_llm.offline.settings import InputFile, file_format
from rlgym_llm.rows.file_format import file_format as readable_format
from rlgym_llm.rows.json_array import starts_array
from rlgym_llm.rows.json_row import BadRowError

__all__ = ["open_inputs"]

_ROWS_LOOKED_AT = 100
_LINES_LOOKED_AT = 10_000
_BOM = b"\xef\xbb\xbf"


def open_inputs(
    paths: Sequence[str],
    *,
    mapping: Mapping[str, str],
    layout: LayoutName | None,
    needs: Collection[str],
    score_column: str,
) -> tuple[InputFile, ...]:
    """Recognises the layout of every file by its first rows.

    ``needs`` are columns that the rewards ask for; a file without one is refused here, while a
    row without one is that row's failure later. Raises DataError, naming the file.
    """
    wanted = dict.fromkeys(["completion", *(field for field in FIELDS if field in needs)])
    files = []
    for path in paths:
        rows, first_bad = _first_rows(path)
        found: Layout | None = None
        if rows:
            if all(score_column in row for row in rows):
                raise DataError(
                    f"has a column {score_column!r} already, which is never overwritten: "
                    "give the new scores another name with --score-column",
                    path=path,
                )
            found = recognise(rows, mapping, name=layout, needs=wanted, path=path)
            found = replace(found, needs=frozenset({"completion"}))
        elif first_bad is not None:
            raise DataError(f"holds no row that can be read; first: {first_bad}", path=path)
        status = Path(path).stat()
        files.append(
            InputFile(
                path=path,
                size=status.st_size,
                mtime_ns=status.st_mtime_ns,
                layout=found,
                is_expanded=found is not None and _is_expanded(rows, found),
            )
        )
    return tuple(files)


def _is_expanded(rows: Sequence[Mapping[str, Any]], layout: Layout) -> bool:
    for row in rows:
        with suppress(DataError):
            return splits_rows(row, layout)
    return False


def _check_is_lines(path: str) -> None:
    """Raises DataError, with the command that helps, for what is neither JSON lines nor parquet."""
    suffix = Path(path).suffix.lower()
    if suffix in (".jsonl", ".ndjson") or (suffix == ".json" and not starts_array(Path(path))):
        return
    if suffix == ".json":
        raise DataError(f"this is a JSON array: {_way_out(path)}", path=path)
    try:
        readable_format(Path(path))
        way_out = _way_out(path)
    except DataError:
        convert = f"rlgym data convert {shlex.quote(path)} out.jsonl"
        way_out = f"give it the ending of what it holds ({convert} reads .json, .gz and .zst too)"
    raise DataError(
        f"files to score are JSON lines (.jsonl) or .parquet, not {suffix or 'without ending'}: "
        + way_out,
        path=path,
    )


def _way_out(path: str) -> str:
    """What makes JSON lines of it; conversion reads an array where the ending is .json."""
    source = path
    if Path(path).suffix.lower() in (".jsonl", ".ndjson"):
        source = str(Path(path).with_suffix(".json"))
    renamed = f"name it {source}, " if source != path else ""
    return f"{renamed}run rlgym data convert {shlex.quote(source)} out.jsonl, then score out.jsonl"


def _first_rows(path: str) -> tuple[list[dict[str, Any]], str | None]:
    """The first rows, and what is wrong with the first line that is none."""
    if not Path(path).is_file():
        what = "this is a folder" if Path(path).is_dir() else "no such file"
        raise DataError(what, path=path)
    if file_format(path) == "parquet":
        from rlgym_llm.offline.parquet_input import first_rows

        return first_rows(path, _ROWS_LOOKED_AT), None
    _check_is_lines(path)
    rows: list[dict[str, Any]] = []
    first_bad: str | None = None
    with Path(path).open("rb") as file:
        for number in range(1, _LINES_LOOKED_AT):
            line = file.readline(LONGEST_LINE)
            if not line or len(rows) == _ROWS_LOOKED_AT:
                break
            line = (line.removeprefix(_BOM) if number == 1 else line).strip()
            if not line:
                continue
            if line == b"[":  # its last element alone would be a row
                raise DataError(f"this is a JSON array: {_way_out(path)}", path=path)
            try:
                rows.append(parse_row(line))
            except BadRowError as error:
                first_bad = first_bad or f"line {number}, {error}"
    if not rows and first_bad and starts_array(Path(path)):
        first_bad += f"; if this is one JSON array, {_way_out(path)}"
    return rows, first_bad
