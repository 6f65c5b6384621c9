"""What an adapter says of another project's functions."""

from __future__ import annotations

from typing import Any

__all__ = ["name_of"]


def name_of(function: Any) -> str:
    """The name of a function or class; of another object that of its class.

    >>> name_of(len), name_of(3)
    ('len', 'int')
    """
    return str(getattr(function, "__name__", type(function).__name__))
