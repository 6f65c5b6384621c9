"""Find the final answer in a completion, in one linear pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rlgym_llm_rewards.number import MAX_CHARS, NUMBER_IN_TEXT

__all__ = ["Answer", "Where", "boxes", "last_marked", "last_number"]

Where = Literal["hash", "boxed", "last_number"]
"""``hash``: a ``#### x`` line; ``boxed``: a ``\\boxed{x}``; else the last number of the text."""

_UP_TO_LAST_DIGIT = re.compile(r".*[0-9]", re.DOTALL)
_BRACE = re.compile(r"\\boxed\s*\{|\\[{}]|[{}]")


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and where."""

    text: str
    where: Where
    start: int
    """Index of the marker or number in the text."""


def boxes(text: str) -> list[Answer]:
    r"""Every ``\boxed{...}`` whose braces balance, in the order in which they close.

    >>> [box.text for box in boxes(r"\boxed{5}, no: \boxed{\frac{1}{2}} and \boxed{3")]
    ['5', '\\frac{1}{2}']
    """
    if "\\boxed" not in text:
        return []
    found = []
    # What stands open: (index of a box's marker or -1 for a plain brace, where its content starts).
    open_braces: list[tuple[int, int]] = []
    for match in _BRACE.finditer(text):
        token = match[0]
        if token == "}":
            if open_braces:
                marker, start = open_braces.pop()
                if marker >= 0:
                    found.append((marker, start, match.start()))
        elif token == "{" or token.startswith("\\boxed"):
            open_braces.append((match.start() if token != "{" else -1, match.end()))
    # Nested boxes share their text; cutting it once per level would not be linear.
    return [
        Answer(text[start:end].strip(), "boxed", marker) for marker, start, end in _innermost(found)
    ]


def _innermost(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The spans that hold no other; they come in the order in which they close."""
    kept: list[tuple[int, int, int]] = []
    for span in spans:
        # A span that closes later and opens before the last one holds it.
        if not kept or span[0] > kept[-1][0]:
            kept.append(span)
    return kept


def last_marked(text: str) -> Answer | None:
    r"""The last ``#### x`` (to the end of its line) or balanced ``\boxed{x}``, else None.

    >>> last_marked("5 + 5 = 10\n#### 10")
    Answer(text='10', where='hash', start=11)
    """
    found = boxes(text)
    box = found[-1] if found else None
    start = text.rfind("####")
    if start < 0 or (box is not None and box.start > start):
        return box
    end = text.find("\n", start)
    line = text[start + 4 : end if end >= 0 else len(text)]
    return Answer(line.strip(), "hash", start)


def last_number(text: str) -> Answer | None:
    """The last number anywhere in the text, else None.

    >>> last_number("she pays 3 x $4 = $12.").text
    '$12'
    """
    up_to_digit = _UP_TO_LAST_DIGIT.match(text)
    if up_to_digit is None:
        return None
    end = up_to_digit.end()
    # The last number ends at the last digit; only its own line, and no endless one, is searched.
    line = max(text.rfind("\n", 0, end) + 1, end - MAX_CHARS)
    *_, last = NUMBER_IN_TEXT.finditer(text, line, end + len(r"\%"))
    return Answer(last[0], "last_number", last.start())
