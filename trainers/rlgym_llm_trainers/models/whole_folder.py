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

    An older one there is replaced. Raises RlgymError, and leaves what was there, where the writing
    fails; ``what`` names what was to be written.
    """
    target = Path(folder)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
    except Exception as error:  # a full disk shows as an error of safetensors' own
        shutil.rmtree(partial, ignore_errors=True)
        raise RlgymError(f"{what} cannot be saved in {target}: {error}") from error
    if target.exists():
        shutil.rmtree(target)
    os.replace(partial, target)
