"""A number with its noun, as people read it."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """The count and the noun in the number that goes with it; ``plural`` where an s is not enough.

    >>> counted(1, "row"), counted(0, "row"), counted(5276, "reply", "replies")
    ('1 row', '0 rows', '5,276 replies')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
