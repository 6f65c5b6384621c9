"""A file that appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rlgym_llm.errors import DataError

__all__ = ["check_new", "new_file"]


def check_new(path: Path, *, overwrite: bool = False) -> None:
    """Raises DataError where ``path`` is there already, is a folder, or has no folder to be in."""
    if path.is_dir():
        raise DataError("this is a folder", path=path)
    if path.exists() and not overwrite:
        raise DataError("exists already: give --overwrite to replace it", path=path)
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}", path=path)


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[IO[bytes]]:
    """Bytes to write; they get the name ``path`` once the block ends without an error.

    They are written beside it, under a hidden name that ends in ``.part``, which goes away on an
    error; only a killed process leaves it. Raises DataError as `check_new` does.
    """
    check_new(path, overwrite=overwrite)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check_new(path, overwrite=overwrite)  # somebody else may have been quicker
        part.replace(path)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", path=path) from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
