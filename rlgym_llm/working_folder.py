"""The folder that relative paths start from, which code of a user's may change under us."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["current_folder", "inside"]


def current_folder() -> str | None:
    """The current directory; None where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


@contextmanager
def inside(folder: str | None) -> Iterator[None]:
    """Work that starts in ``folder``, and wherever it goes, ends where this process was before.

    None starts where the process is. A folder that is no longer there is passed over.
    """
    before = current_folder()
    _go(folder)
    try:
        yield
    finally:
        _go(before)


def _go(folder: str | None) -> None:
    if folder is not None:
        with suppress(OSError):
            os.chdir(folder)
