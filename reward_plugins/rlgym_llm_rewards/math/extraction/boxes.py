r"""Find ``\boxed{...}`` and its kin, and join the boxes that make up one answer."""

from __future__ import annotations

import re
from typing import NamedTuple

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.extraction.found import Found
from rlgym_llm_rewards.math.extraction.spans import tidy

__all__ = ["Box", "answer_of", "boxes", "find_boxes", "is_unclosed"]

# A box without braces holds a number, or one letter at the end of its line.
_TOKEN = lazy_pattern(
    r"""\\(?:f?boxed|fbox|framebox|beginboxed)\s*+
        (?:\{ | (?P<bare>[-+−]?\d++(?:[.,]\d++)*+ | [A-Za-z](?=[ ]?[$.]?[ ]?(?:\n|$))))?
      | \\\\(?![A-Za-z]) | \\[{}] | [{}]""",
    re.VERBOSE,
)
_OPENING = lazy_pattern(r"\\(?:f?boxed|fbox|framebox|beginboxed)\s*+\{")
# All that may stand between two boxes of one list: no other word.
_JOINT = lazy_pattern(
    r"""(?: [\s,;&$] | \\[,;:! ()\[\]] | \\q?quad(?![A-Za-z]) | \b(?:and|or)\b
      | \\(?:text|textrm|mathrm|mbox)\s*\{\s*(?:and|or|,|;)?\s*\} )*""",
    re.VERBOSE,
)
_MAX_JOINT = 200
_INNER_BRACKETS = lazy_pattern(r"\([^()]*+\)|\[[^\[\]]*+\]")
_SEVERAL = lazy_pattern(r"[,;]|\\pm|±|\b(?:and|or)\b")


class Box(NamedTuple):
    """Where one box stands in its text."""

    start: int
    """Index of its backslash."""
    inner: int
    """Where its content starts, and where that ends."""
    inner_end: int
    end: int
    """The first index behind it."""


def boxes(text: str) -> list[Found]:
    r"""Every ``\boxed{...}`` whose braces balance, in the order in which they close.

    Of nested boxes only the innermost. Other boxes (``\fbox``, ``\boxed 7``) are left out.

    >>> [box.text for box in boxes(r"\boxed{5}, no: \boxed{\frac{1}{2}} and \boxed{3")]
    ['5', '\\frac{1}{2}']
    """
    return [
        Found(text[box.inner : box.inner_end].strip(), "boxed", box.start)
        for box in find_boxes(text)
        if text.startswith(r"\boxed", box.start) and box.end > box.inner_end
    ]


def find_boxes(text: str) -> list[Box]:
    r"""Every box of any kind, ``\fbox{x}`` and ``\boxed 7`` among them; linear in the text.

    >>> find_boxes(r"\fbox{42}")
    [Box(start=0, inner=6, inner_end=8, end=9)]
    """
    if "box" not in text:
        return []
    found: list[Box] = []
    # What stands open: (index of a box's marker or -1 for a plain brace, where its content starts).
    open_braces: list[tuple[int, int]] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "}":
            if open_braces:
                marker, start = open_braces.pop()
                # A box that holds the one found last is no innermost one.
                if marker >= 0 and not (found and marker < found[-1].start):
                    found.append(Box(marker, start, match.start(), match.end()))
        elif token == "{":
            open_braces.append((-1, match.end()))
        elif token.endswith("{") and token[1] not in "{}":
            open_braces.append((match.start(), match.end()))
        elif match["bare"] is not None:
            found.append(Box(match.start(), match.start("bare"), match.end(), match.end()))
    return found


def is_unclosed(text: str, found: list[Box]) -> bool:
    """Whether a box opens behind the last of those found: an answer that was cut off."""
    return _OPENING.search(text, found[-1].end if found else 0) is not None


def answer_of(text: str, found: list[Box], num_parts: int = 1) -> Found:
    r"""The answer that the last of the boxes is, together with those joined to it by a connector.

    ``num_parts``: how many elements it should have, 0 if that is not known.

    >>> text = r"Not \boxed{1}; so $\boxed{5}$ and $\boxed{7}$."
    >>> answer_of(text, find_boxes(text))
    Found(text='5, 7', where='boxed', start=19, parts=('5', '7'))
    """
    first = len(found) - 1
    says_or = False
    while first > 0:
        joint = text[found[first - 1].end : found[first].start]
        # White space over a line's end parts two statements; so does any between two of which one
        # value is asked for. Without it, "\boxed{1}\boxed{2}", no box is the last word.
        is_blank = joint and not joint.strip(" $\t\n")
        if len(joint) > _MAX_JOINT or (is_blank and (num_parts == 1 or "\n" in joint)):
            break
        if _JOINT.fullmatch(joint) is None:
            break
        says_or |= re.search(r"\bor\b", joint) is not None
        first -= 1
    group = found[first:]
    last = _content(text, found[-1])
    if len(group) < num_parts <= len(found) and not _SEVERAL.search(_without_brackets(last)):
        group = found[-num_parts:]
    parts = tuple(_content(text, box) for box in group)
    if len(set(parts)) == 1:
        return Found(last, "boxed", group[-1].start)
    return Found((" or " if says_or else ", ").join(parts), "boxed", group[0].start, parts)


def _content(text: str, box: Box) -> str:
    return tidy(text[box.inner : box.inner_end])


def _without_brackets(text: str) -> str:
    # The commas of (1, 2) part no list. Two levels do: ((1, 2), 3) is rare, and stays one answer.
    return _INNER_BRACKETS.sub("", _INNER_BRACKETS.sub("", text))
