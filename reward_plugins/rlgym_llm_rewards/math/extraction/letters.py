"""Find the option that a text of multiple choice decides for."""

from __future__ import annotations

import re
from itertools import pairwise

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.extraction.spans import Piece

__all__ = ["last_letter"]

_LETTER = r"(?<![A-Za-z0-9'’_\\])(?:\([A-J]\)|[A-J])(?![A-Za-z0-9'’_])(?!\s[a-z]+ed\b)"
_GAP = r"[\s*`_$]{0,6}"
_OR = r"(?:and|or|maybe|perhaps|possibly|alternatively)\b"
_JOINT = rf"{_GAP}(?:[,/;(]{_GAP}(?:{_OR}{_GAP}){{0,2}}|{_OR}{_GAP}(?:{_OR}{_GAP})?)"
_LETTERS = lazy_pattern(rf"{_LETTER}(?:{_JOINT}{_LETTER})*+")
# Letters that are named only to be set aside, and words that look like letters.
_NO_CHOICE = lazy_pattern(
    rf"""(?: (?i:\b(?:not|never|nor|neither|than|without|cannot|non|pas|nicht|eliminat\w+|exclud\w+
        |reject\w*|discard\w*|dismiss\w*|(?:rul|cross)\w*\s+out)\b) | n['’]t\b | 不是 )
      (?:\s*(?:be|choose|options?|choices?|answers?|the|both)\b)*+ {_GAP} {_LETTERS.pattern}
    | {_LETTERS.pattern} {_GAP} (?: \b(?:is|are|was|were|seems?)\s+(?:clearly\s+|also\s+|both\s+)?
        (?:too|wrong|incorrect|false|impossible|invalid|out|eliminated|excluded|ruled)\b
      | \b(?:fails?\b | (?:do|does|is|are|can)(?:n['’]t|\s?not)\b) )
    | \bI\b(?=\s[a-z'])
    | \bA\b(?=\s(?!(?:is|or|and|because|since|as|possibly|maybe|perhaps)\b)[a-z])""",
    re.VERBOSE,
)
_PICKED = lazy_pattern(rf"({_LETTER})\s+(?:is|must\sbe)\s+(?:the\s+)?(?:correct|right|best|answer)")
# What decides for a letter where others stand before it.
_DECIDED = lazy_pattern(
    rf"""(?i:\b(?:so|thus|hence|therefore|leaving|leaves|choose|chose|pick|select|go\s+with|answer
      |must\s+be|it\s+is|it['’]s)\b)
    (?:\s+(?:only|just|with|we|I|choose|pick|select|the|answer|option|choice|is|it|must|be)\b|[,:]|it['’]s)*+
    {_GAP} (?P<chosen>{_LETTERS.pattern})""",
    re.VERBOSE,
)
_SET_OFF = lazy_pattern(r"[()*`]")
_SINGLE = lazy_pattern(_LETTER)
_SENTENCE_END = lazy_pattern(r"[.!?](?=\s|$)|[。！？\n]")


def last_letter(text: str) -> Piece | None:
    """The choice, A to J, of the last sentence that names one; all where it decides for none.

    >>> last_letter("A fails. So it is (B), not C.").text, last_letter("It is A, B or C.").text
    ('(B)', 'A, B or C')
    >>> last_letter("(A) gives 3 and (B) gives 4, so we choose (B).").text
    '(B)'
    """
    kept = _NO_CHOICE.sub(lambda match: " " * len(match[0]), text)
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(kept)), len(kept)]
    for start, end in reversed(list(pairwise(ends))):
        picked = _PICKED.search(kept, start, end)
        if picked:
            return Piece(picked.start(1), picked.end(1), picked[1])
        named = list(_LETTERS.finditer(kept, start, end))
        if not named:
            continue
        first, last = named[0].start(), named[-1].end()
        if len({match[0].strip("()") for match in named}) > 1:
            for decided in _DECIDED.finditer(kept, named[0].end(), end):
                first, last = decided.span("chosen")
        else:
            first = named[-1].start()
        said = text[first:last]
        # (A), (B) is two letters; "(A) and its text" would be one.
        is_one = _SINGLE.fullmatch(said) is not None
        return Piece(first, last, said if is_one else _SET_OFF.sub("", said))
    return None
