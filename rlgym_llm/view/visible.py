"""Text of strangers, made fit to be looked at: nothing hidden, nothing endless."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

__all__ = ["Excerpt", "excerpt", "visible"]

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but tab and newline
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # no width, or turn the line around
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"  # half pairs, annotations, tags
)


def visible(text: str) -> str:
    r"""The text with every character that would hide, or turn the line around, named in brackets.

    Line ends become newlines. What comes out encodes as UTF-8; it is not escaped for HTML.

    >>> visible("a\0b\u202ec\r\n")
    'a[U+0000]b[U+202E]c\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(_named, text.replace("\r\n", "\n"))


def _named(match: re.Match[str]) -> str:
    return f"[U+{ord(match[0]):04X}]"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A visible text, or the two ends of one that is long."""

    head: str
    num_left_out: int = 0
    """Characters between head and tail."""
    tail: str = ""


def excerpt(text: str, most: int = sys.maxsize) -> Excerpt:
    """`visible` of at most ``most`` characters: four fifths of them the first, the others the last.

    >>> excerpt("0123456789", 5)
    Excerpt(head='0123', num_left_out=5, tail='9')
    """
    if len(text) <= most:
        return Excerpt(visible(text))
    head, tail = most - most // 5, most // 5
    left_out = len(text) - head - tail
    return Excerpt(visible(text[:head]), left_out, visible(text[len(text) - tail :]))
