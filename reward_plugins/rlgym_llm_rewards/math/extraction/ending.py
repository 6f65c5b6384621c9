"""The answer of a text that ends in it, as nearly all do: a look at the end, before the search."""

from __future__ import annotations

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm.unchecked import unchecked_tuple
from rlgym_llm_rewards.math.extraction.clause import is_plain
from rlgym_llm_rewards.math.extraction.denial import (
    bounds_another,
    is_denied,
    is_disowned,
    rejects_itself,
)
from rlgym_llm_rewards.math.extraction.found import Found, Where
from rlgym_llm_rewards.math.extraction.markers import may_mark
from rlgym_llm_rewards.math.extraction.spans import tidy
from rlgym_llm_rewards.math.extraction.visible import without_records
from rlgym_llm_rewards.math.policy import Policy

__all__ = ["LAST_NUMBER", "at_the_end", "in_last_line"]

_found = unchecked_tuple(Found)

_LAST_BOX = lazy_pattern(r"\\boxed\{([^{}\\\s][^{}\\]*+)\}[\s$.)\]\\]*+\Z")
LAST_NUMBER = lazy_pattern(r"[ \t]*([-−]?\$?[0-9]+(?:[.,][0-9]+)*(?:/[0-9]+)?%?)\.?[ \t\r\n]*\Z")
"""One number as it is mostly written, and nothing behind it."""
_LAST_LINE = lazy_pattern(rf"(####|A:){LAST_NUMBER.pattern}")
_ARTICLES = ("the ", "The ", "nal ", "our ", "")
# What may join, negate or work on the number behind it: a closer look is needed.
_OPERATORS = tuple(
    " or, and, not,n't,n’t, be, ou, et,nicht, pas, oder, und, but, from, to, near, than, of,f the"
    ",aybe, y, e, o, и,или,не".split(",")
)
_ANOTHER = lazy_pattern(r"(?:and|or|,|y|und|и)\s[A-Za-z](?:_?\d|[₀-₉])?\s?=\s?\Z")


def in_last_line(text: str, policy: Policy) -> Found | None:
    """The answer where the text ends in a box, or its last line is a marker and one number.

    No marker before it counts, and nothing is behind it: that is the answer if it is not copied.
    """
    if "\\" in text and "\\boxed{" in text:
        return _last_box(text)
    start = text.rfind("\n", 0, len(text.rstrip())) + 1
    line = None if policy.require_box else _LAST_LINE.match(text, start)
    if line is None:
        return None
    return _found((line[2], "hash" if line[1] == "####" else "phrase", start, ()))


def at_the_end(text: str, policy: Policy) -> Found | None:
    """The answer where the text ends in the plainest of markers, as nearly all do; else None."""
    if "\\" in text and "\\boxed{" in text:
        return _last_box(text)
    if policy.require_box or text.find("</", -300) >= 0:
        return None
    if "####" in text:
        return _plain(text, text.rfind("####"), 4, "hash")
    at = text.rfind("\nA:") + 1
    if at:
        return _plain(text, at, 2, "phrase")
    if "nswer" in text:
        at = text.rfind("answer is ")
        is_ours = at >= 0 and text[max(at - 4, 0) : at] in _ARTICLES
        if not is_ours or is_denied(text, at) or is_disowned(text, at):
            return None
        return _plain(text, at, len("answer is "), "phrase")
    if policy.extraction == "strict" or "\n" not in text:
        return None
    if "\\" in text or '":' in text or may_mark(text):
        return None
    text = text.rstrip().removesuffix(".")
    at = text.rfind(" ") + 1
    before = text[max(at - 6, 0) : max(at - 1, 0)]
    if before.endswith("=") and (_ANOTHER.search(text, max(at - 16, 0), at) or _is_record(text)):
        return None
    follows = before[-1:].islower() or before.endswith((" =", "\n="))
    if not follows or before.endswith(_OPERATORS) or not is_plain(text[at:]):
        return None
    if is_denied(text, at):
        return None
    return Found(text[at:], "number", at)


def _last_box(text: str) -> Found | None:
    """The only box of a text that ends in it; else None."""
    at = max(text.find("box") - 1, 0)
    box = _LAST_BOX.match(text, at)
    if box is None or is_denied(text, at) or bounds_another(text, at):
        return None
    answer = tidy(box[1])
    return None if rejects_itself(answer) else Found(answer, "boxed", at)


def _is_record(text: str) -> bool:
    line = text[text.rfind("\n") + 1 :]
    return without_records(line) != line


def _plain(text: str, at: int, skip: int, where: Where) -> Found | None:
    answer = text[at + skip :].strip().removesuffix(".")
    return _found((answer, where, at, ())) if is_plain(answer) else None
