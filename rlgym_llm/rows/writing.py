"""What cannot be written names its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlgym_llm.errors import RlgymError

__all__ = ["writing"]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within it, an OSError (a full disk, say) becomes an RlgymError that names ``path``.

    Python itself names no file where it was opened before.
    """
    try:
        yield
    except OSError as error:
        raise RlgymError(f"{path}: cannot be written: {error.strerror or error}") from error
