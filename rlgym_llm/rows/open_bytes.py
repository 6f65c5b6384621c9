"""Bytes of a file, unpacked and packed by the file's ending."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from rlgym_llm.errors import DataError, UserError

__all__ = ["Packing", "open_bytes", "pack"]

Packing = Literal["", "gz", "zst"]
"""How the bytes are compressed."""

_BUFFER = 1 << 20


@contextmanager
def open_bytes(path: Path, packing: Packing = "") -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked. Raises DataError where it cannot be read or is packed badly."""
    with ExitStack() as stack:
        try:
            if packing == "zst":
                arrow: Any = _pyarrow()
                source = stack.enter_context(arrow.OSFile(str(path)))
                unpacked = stack.enter_context(arrow.CompressedInputStream(source, "zstd"))
                yield io.BufferedReader(unpacked, _BUFFER)
                return
            raw = stack.enter_context(path.open("rb"))
            if packing == "gz":
                unpacked = stack.enter_context(gzip.GzipFile(fileobj=raw))
                yield io.BufferedReader(unpacked, _BUFFER)
            else:
                yield raw
        except (OSError, EOFError) as error:  # BadGzipFile is an OSError
            reason = getattr(error, "strerror", None) or str(error)
            raise DataError(f"cannot be read: {reason}", path=path) from error


@contextmanager
def pack(file: IO[bytes], packing: Packing = "") -> Iterator[IO[bytes]]:
    """Wraps a file that is being written; what is written goes there compressed."""
    if packing == "gz":
        # No time stamp and no name: the same rows give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    elif packing == "zst":
        arrow = _pyarrow()
        # Arrow closes what it is given, and the file is the caller's.
        own = os.fdopen(os.dup(file.fileno()), "wb")
        with arrow.CompressedOutputStream(arrow.PythonFile(own, "w"), "zstd") as stream:
            buffered = io.BufferedWriter(stream, _BUFFER)
            yield buffered
            buffered.flush()
            buffered.detach()
    else:
        yield file


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise UserError("parquet and .zst need pyarrow: pip install 'rlgym-llm[data]'") from error
    return pyarrow
