"""Fetches what ``"module:attr"`` names."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["load_entry_point"]


def load_entry_point(text: str) -> Any:
    """Imports the module and returns what it has under that name, which may be dotted.

    Whatever the import raises passes through; AttributeError where the module has no such name.

    >>> load_entry_point("datetime:date.min").year
    1
    """
    module, _, path = text.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found
