"""Where a text marks its final answer: ``####``, answer tags, "the answer is" in many tongues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.extraction.denial import is_denied, is_disowned
from rlgym_llm_rewards.math.extraction.found import Where

__all__ = ["Marker", "last_marker", "may_mark"]

_MAX_TRIES = 256
"""How many mentions of a marker's word are looked at, from the end."""

_VERB = r"""(?: [:：=]
    | (?: (?:will|would|should|must|has\s+to|can\s+only)\s+be | is | are | was | were
      | equals? | becomes | comes\s+out\s+to(?:\s+be)? )(?![A-Za-z'’]) )"""
_ANSWER = lazy_pattern(
    rf"""answers?(?![A-Za-z])
    (?:[ ](?:to|in|for|of)[ ][^.\n:=$]{{0,80}}? | ,[^.,\n]{{0,60}}, | [ ]?\([^)\n]{{0,40}}\))?
    [*_\s"]*+ {_VERB}""",
    re.VERBOSE | re.IGNORECASE,
)
# A heading: the answer stands on the next line, or in math beside it.
_HEADING = lazy_pattern(r"answer[*_]*+[ \t]*+(?=\n|\$|\\[(\[])", re.IGNORECASE)
_HEADING_START = lazy_pattern(
    r"[#*_\s\d.]*+(?:the\s+)?(?:final\s+|my\s+|correct\s+)?", re.IGNORECASE
)
# A row of a table: its second cell, unless this is the row of headings.
_CELL = lazy_pattern(
    r"answer[*_ ]*+\|[ ]*+(?=[^\s|][^|\n]*+\|)(?![^\n]*+\n[ ]*+\|?[ ]*+:?--)", re.IGNORECASE
)
_CELL_START = lazy_pattern(r"[ ]*\|[*_ ]*(?:the\s+)?(?:final\s+|my\s+|correct\s+)?", re.IGNORECASE)
_INSTRUCTION = lazy_pattern(
    r"""\b(?:find|express|give|write|compute|determine|check)\s(?:the|an|our|my)(?:\sfinal)?\s\Z""",
    re.IGNORECASE,
)
_CHOICE = lazy_pattern(rf"(?:[Oo]ption|[Cc]hoice|[Ll]etter)\s*+{_VERB}", re.VERBOSE)
_FOREIGN = lazy_pattern(
    r"""(?:
      (?:答案|答え|正解|정답|[Оо]твет|الإجابة|الجواب|उत्तर|[Rr]éponse|[Rr]espuesta|[Aa]ntwort|[Rr]isposta
        |[Rr]esposta|[Aa]ntwoord|[Oo]dpowiedź|[Đđ]áp[ ]án)
      [*_\s]*+ (?: [:：=—] | 是 | 为 | 為 | 等于 | は | 은 | 는 | هي | هو
        | (?:est|es|ist|è|é|is|adalah|to|là)(?!\w) )
    | (?:答|답)[*_\s]*+[:：] )[:：]?""",
    re.VERBOSE,
)
_FOREIGN_HINT = lazy_pattern("答|正解|정답|твет|جابة|جواب|उत्तर|éponse|dpowied|áp án")


class Marker(NamedTuple):
    """A marker that stands in a text."""

    start: int
    end: int
    """Where the answer starts."""
    where: Where
    stop: int | None = None
    """Where the answer certainly ends, None where its clause decides that."""
    is_denied: bool = False
    """Whether what stands before it denies what it marks: "the wrong answer is"."""


def last_marker(text: str, limit: int, *, wants_choice: bool = False) -> Marker | None:
    """The last marker that starts before ``limit``. Boxes are found elsewhere.

    >>> last_marker("First 5. The answer is 7.", 25)
    Marker(start=13, end=22, where='phrase', stop=None, is_denied=False)
    """
    best: Marker | None = None
    for find in (_hash, _tag, _answer, _line, _foreign):
        marker = find(text, limit)
        if marker is not None and (best is None or marker.start > best.start):
            best = marker
    if wants_choice:
        for match in _CHOICE.finditer(text, 0, limit):
            if best is None or match.start() > best.start:
                best = Marker(match.start(), match.end(), "phrase")
    return best


def may_mark(text: str) -> bool:
    """Whether a phrase other than "answer" or a line ``A:`` may mark an answer: a quick look."""
    return "NSWER" in text or text.startswith("A:") or _may_be_foreign(text)


def _may_be_foreign(text: str) -> bool:
    # One of these stands in every foreign marker.
    if "ntwo" in text or "puesta" in text or "sposta" in text:
        return True
    return not text.isascii() and _FOREIGN_HINT.search(text) is not None


def _hash(text: str, limit: int) -> Marker | None:
    for _ in range(_MAX_TRIES):
        start = text.rfind("####", 0, limit)
        if start < 0:
            return None
        stop = text.find("\n", start)
        stop = stop if stop >= 0 else len(text)
        said = text[start + 4 : stop].strip("# \t")
        is_heading = said[:2].isalpha() and text[stop:].strip() and len(said) > 2
        if said and not is_heading:
            return Marker(start, start + 4, "hash", stop)
        limit = text.rfind("\n", 0, start) + 1  # one line marks one answer
    return None


def _tag(text: str, limit: int) -> Marker | None:
    start = text.rfind("<answer>", 0, limit)
    if start < 0:
        return None
    stop = text.find("</answer>", start)
    if stop < 0:  # cut off: what the one before it says was to be replaced
        return None
    return Marker(start, start + len("<answer>"), "tag", stop)


def _answer(text: str, limit: int) -> Marker | None:
    if "nswer" not in text and "NSWER" not in text:
        return None
    for start in islice(_mentions(text, limit), _MAX_TRIES):
        match = _ANSWER.match(text, start) or _beside(text, start, _HEADING_START, _HEADING)
        if match and not _INSTRUCTION.search(text, max(start - 24, 0), start):
            disowned = is_disowned(text, start)
            if disowned and text[start + 6] in "sS":  # wrong answers may be counted
                continue
            denied = disowned or is_denied(text, start)
            return Marker(start, match.end(), "phrase", is_denied=denied)
        if match is None and (cell := _beside(text, start, _CELL_START, _CELL)):
            return Marker(start, cell.end(), "phrase", text.index("|", cell.end()))
    return None


def _mentions(text: str, limit: int) -> Iterator[int]:
    """Where the word starts, from the end; in capitals only where it is not written otherwise."""
    for word, first in (("nswer", "aA"), ("NSWER", "A")):
        end = limit
        while (at := text.rfind(word, 0, end)) > 0:
            if text[at - 1] in first and not text[at - 2 : at - 1].isalpha():
                yield at - 1
            end = at
        if end < limit:
            return


def _beside(
    text: str, start: int, opening: re.Pattern[str], pattern: re.Pattern[str]
) -> re.Match[str] | None:
    """The pattern at ``start`` if all that stands before it on its line is the opening."""
    line = text.rfind("\n", max(start - 40, 0), start) + 1
    if not line and start > 40:
        return None
    if opening.fullmatch(text, line, start) is None:
        return None
    return pattern.match(text, start)


def _line(text: str, limit: int) -> Marker | None:
    at = text.rfind("\nA:", 0, limit)
    if at >= 0:
        return Marker(at + 1, at + 3, "phrase")
    return Marker(0, 2, "phrase") if text.startswith("A:") and limit > 0 else None


def _foreign(text: str, limit: int) -> Marker | None:
    if not _may_be_foreign(text):
        return None
    last = None
    for match in _FOREIGN.finditer(text, 0, limit):
        last = match
    return None if last is None else Marker(last.start(), last.end(), "phrase")
