"""What extraction hands to the comparison."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Found", "Where"]

Where = Literal["boxed", "hash", "tag", "phrase", "math", "number", "text"]
"""``boxed``: a box; ``hash``: a ``#### x`` line; ``tag``: ``<answer>x</answer>``; ``phrase``: "the
answer is x" and its like; and without any marker ``math``: the last math span; ``number``: the last
number; ``text``: the whole text."""


class Found(NamedTuple):
    """An answer as it was written, and where it stood."""

    text: str
    """Without what is certainly no part of it: white space, a closing full stop, bold."""
    where: Where
    start: int
    """Index in the completion of the marker, or of the span where there is none."""
    parts: tuple[str, ...] = ()
    """The single boxes where several make up ``text``."""
