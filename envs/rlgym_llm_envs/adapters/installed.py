"""Imports a project that an adapter stands for, or says how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from rlgym_llm.errors import DataError

__all__ = ["installed"]


def installed(module: str, *, pip: str, who: str) -> Any:
    """The module, imported now; DataError with the ``pip install`` where it is missing.

    >>> installed("json", pip="json", who="environment 'x'").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{who} needs the package {pip}, which does not import ({error}): pip install {pip}"
        ) from error
