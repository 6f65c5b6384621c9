"""What an adapter says of another project's functions and errors."""

from __future__ import annotations

from typing import Any

__all__ = ["error_line", "name_of"]


def name_of(function: Any) -> str:
    """The name of a function or class; of another object that of its class.

    >>> name_of(len), name_of(3)
    ('len', 'int')
    """
    return str(getattr(function, "__name__", type(function).__name__))


def error_line(error: Exception) -> str:
    r"""What an error says on one line of at most 300 characters; its class where it says nothing.

    >>> error_line(ValueError("no\n such thing")), error_line(KeyError())
    ('no such thing', 'KeyError')
    """
    return " ".join(str(error).split())[:300] or type(error).__name__
