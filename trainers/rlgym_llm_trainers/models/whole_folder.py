"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlgym_llm.errors import RlgymError

__all__ = ["whole_folder"]


@contextmanager
def whole_folder(folder: str | Path, *, what: str) -> Iterator[Path]:
    """An empty folder to write into, beside ``folder`` and renamed into its place at the end.

    An older one there is replaced; a kill in that moment leaves it whole beside its place, under
    its name with ``.old``. Raises RlgymError, and leaves what was there, where the writing fails;
    ``what`` names what was to be written.
    """
    target = Path(folder)
    partial, old = (target.with_name(target.name + end) for end in (".partial", ".old"))
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        _put_in_place(partial, target, old)
    except Exception as error:  # a full disk shows as an error of safetensors' own
        shutil.rmtree(partial, ignore_errors=True)
        raise RlgymError(f"{what} cannot be saved in {target}: {error}") from error
    shutil.rmtree(old, ignore_errors=True)


def _put_in_place(partial: Path, target: Path, old: Path) -> None:
    """Renames, since only that is done at once; the older folder is whole until the end."""
    if not target.exists():
        os.replace(partial, target)
        return
    shutil.rmtree(old, ignore_errors=True)
    os.replace(target, old)
    try:
        os.replace(partial, target)
    except OSError:
        os.replace(old, target)
        raise
