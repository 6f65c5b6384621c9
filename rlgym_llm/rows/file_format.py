"""What a file is, by its ending, and the reader for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rlgym_llm.errors import DataError
from rlgym_llm.rows.json_array import read_json_array, starts_array
from rlgym_llm.rows.jsonl import read_jsonl
from rlgym_llm.rows.open_bytes import Packing
from rlgym_llm.rows.parquet import read_parquet
from rlgym_llm.rows.row import RowStream

__all__ = ["FileFormat", "file_format", "read_rows"]

_NAMES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PACKINGS: Final[dict[str, Packing]] = {".gz": "gz", ".zst": "zst"}


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How the rows are written down, and how the bytes are compressed."""

    name: Literal["jsonl", "json", "parquet"]
    packing: Packing = ""


def file_format(path: Path) -> FileFormat:
    """The format that the ending says. Raises DataError, with the endings known, for another.

    >>> file_format(Path("train.jsonl.gz"))
    FileFormat(name='jsonl', packing='gz')
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing: Packing = ""
    if suffixes and suffixes[-1] in _PACKINGS:
        packing = _PACKINGS[suffixes.pop()]
    name = _NAMES.get(suffixes[-1]) if suffixes else None
    if name is None or (name == "parquet" and packing):
        known = f"{', '.join(_NAMES)}, and all but parquet with .gz or .zst behind"
        raise DataError(f"unknown file type; expected one of {known}", path=path)
    return FileFormat(name, packing)  # type: ignore[arg-type]


def read_rows(path: Path) -> RowStream:
    """The rows of a file of any known format; a ``.json`` file is an array or JSON lines.

    Raises DataError at once where there is no such file or its ending is unknown.
    """
    kind = file_format(path)
    if not path.is_file():
        raise DataError("this is a folder" if path.is_dir() else "no such file", path=path)
    if kind.name == "parquet":
        return read_parquet(path)
    if kind.name == "json" and starts_array(path, kind.packing):
        return read_json_array(path, kind.packing)
    return read_jsonl(path, kind.packing)
