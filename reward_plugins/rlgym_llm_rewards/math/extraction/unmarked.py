"""Find the answer of a text that marks none: the whole, or its last statement."""

from __future__ import annotations

import re

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.extraction.denial import (
    is_denied,
    is_operand,
    is_rejected,
    rejects_itself,
)
from rlgym_llm_rewards.math.extraction.found import Found, Where
from rlgym_llm_rewards.math.extraction.letters import last_letter
from rlgym_llm_rewards.math.extraction.spans import (
    Piece,
    is_math,
    last_math,
    last_number,
    math_spans,
    tidy,
    without_commands,
)

__all__ = ["last_statement"]

_WINDOW = 4096
_MAX_REMARK = 300
"""Characters without a number or math that may follow the last statement."""

_UP_TO_LAST_DIGIT = lazy_pattern(r".*\d", re.DOTALL)
_WORD = lazy_pattern(r"(?!(?:and|or|sin|cos|tan|log|ln|exp|sqrt|pi)\b)[^\W\d_]{2,}")
# Letters beyond Latin and Greek; a number among them stands in a sentence.
_OTHER_SCRIPT = lazy_pattern(r"[^\W\d_\x00-\u03ff\u1e00-\u2fff\U0001d400-\U0001d7ff]")
_STATES = lazy_pattern(
    r"\b(?:is|are|was|were|be|equals|gives|makes|it|so|é|è|est|ist|es|sind|son)\b|[.?!]\s|[。！？]"
)
_STARTS_PROSE = lazy_pattern(
    r"(?:(?!(?:sin|cos|tan|log|ln|exp|pi)\b)[^\W\d_]{2,}[\s,:]|[IAa]\s)(?!\s*[-+*/=<>^(])"
)
# What the other alternative is was not read. ", or" says the same in other units.
_OR = lazy_pattern(r"[^,]\s+or\s+\Z")
# "f(2) = 5, as desired": words that say nothing of their own.
_AFTERTHOUGHT = lazy_pattern(
    r"[,;]\s+(?:as|which|so|since|because|hence|thus|therefore|by|q\.?e\.?d)\b[^\d=<>\\$]*\Z",
    re.IGNORECASE,
)
# "(at x = 1)", "(about 28%)": how or where, no value of its own.
_BRACKETED = lazy_pattern(
    r"""\s\((?<=[\w$%)}*]\s\()(?:at|when|where|approximately|approx\.?|about|roughly|around|attained|achieved
      |reached|since|because|as|if|given|rounded|i\.e\.|for(?!\s+a\s))\s[^()\n]*(?:\([^()\n]*\)[^()\n]*)?\)
    [\s.!*]*\Z""",
    re.VERBOSE,
)
_OFFER = lazy_pattern(
    r"""\s(?:(?<=[.!?*)]\s)\s*|(?<=\n))(?:(?:please\s+)?let\s+me\s+know|feel\s+free|would\s+you\s+like|do\s+you\s+want
      |shall\s+I|should\s+I|if\s+you(?:['’]d\s+like|\s+(?:have|need|want|would))|I['’]m\s+happy\s+to
      |happy\s+to\s+help)\b[^\n]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_OFFER_HINTS = ("know", "free", "you", "hall", "hould", "happy")
# The number of a heading, and of an item of a list.
_HEADING = lazy_pattern(r"\n[ \t]*#{1,6}[ \t]+[*_]*(?:\w+[ \t]+)?(\d{1,3})[.):](?!\d)")
_ITEM = lazy_pattern(r"\n[ \t]*[*_]*(\d{1,3})[.)][ \t]+(?=[*_]*[^\W\d_]{2})")
_OF_THE = lazy_pattern(r"\d%?\s+of\s+(?:the|these|those|his|her|its|their|our|my)\s+\Z")
_QUOTED = lazy_pattern(r">\s+(?=[-−]?[$€£¥]?\d[\d.,/]*%?\Z)")
_ROW = lazy_pattern(r"\|[^|\n]*[^\W\d_]{3}[^|\n]*\|(?:[^|\n]*\|)*?([^|\n]*)\|")
_COMMAND = lazy_pattern(r"\\[A-Za-z]{2,}")
_LEADS_TO = lazy_pattern(r"(?:\b(?:is|are|be|equals|gives)\b|[=:])\s*")
_LINE_START = lazy_pattern(r"\n|[.?!]\s|[。！？]")
_OPERATOR = lazy_pattern(r"[*^=+<>]")
_LETTER_SPAN = lazy_pattern(r"[A-Za-z]")


def last_statement(
    text: str, *, anywhere: bool, wants_choice: bool = False, num_parts: int = 1
) -> Found | None:
    r"""The text where it is one short expression, else its last math span or number.

    A remark of at most 300 characters may follow that; ``anywhere``: any text may, if the
    statement is a number.

    >>> last_statement("918\\frac{1}{2}", anywhere=False).where
    'text'
    >>> last_statement("Hence it costs $12. What a bargain!", anywhere=False)
    Found(text='$12', where='number', start=15, parts=())
    """
    stripped = text.rstrip()
    trailing = _AFTERTHOUGHT.search(stripped, max(len(stripped) - 80, 0))
    if trailing and _is_expression(stripped[: trailing.start()]):
        stripped = stripped[: trailing.start()]
    base = max(len(stripped) - _WINDOW, 0)
    window = stripped[base:]
    if wants_choice and not (_is_expression(stripped) and _OPERATOR.search(stripped)):
        letter = last_letter(window[-2 * _MAX_REMARK :])
        if letter is not None:
            start = max(len(stripped) - 2 * _MAX_REMARK, 0) + letter.start
            return Found(letter.text, "text", start)
    if _is_expression(stripped):
        start = len(stripped) - len(stripped.lstrip())
        row = _ROW.fullmatch(stripped, start)
        quote = _QUOTED.match(stripped, start)
        whole = row[1] if row else stripped[quote.end() :] if quote else stripped
        whole = tidy(whole).removeprefix("=").lstrip()
        if rejects_itself(whole) or not whole.strip("#$,\\ "):
            return None
        return Found(whole, "text", start)
    found = _last(_without_asides(window), base, num_parts)
    if found is None and anywhere:
        stripped = _without_labels(stripped)
        digit = _UP_TO_LAST_DIGIT.match(stripped, 0, base)
        if digit is None:
            digit = _UP_TO_LAST_DIGIT.match(stripped)
        if digit is not None:
            base = max(digit.end() - _WINDOW, 0)
            number = last_number(stripped[base : digit.end() + 40], digit.end() - base, num_parts)
            found = _found(number, "number", base) if number else None
    return found


def _is_expression(text: str) -> bool:
    text = text.lstrip()
    if not text or "\n" in text or _STARTS_PROSE.match(text):
        return False
    if _OTHER_SCRIPT.search(text) and any(map(str.isdecimal, text)):
        return False
    bare = without_commands(text)
    return not _STATES.search(bare) and len(_WORD.findall(bare)) <= 2


def _without_asides(window: str) -> str:
    """The window without what is no statement at its end, and without numbers that only count."""
    near = max(len(window) - _MAX_REMARK, 0)
    tail = window[near:].lower()
    for aside, hints in ((_OFFER, _OFFER_HINTS), (_BRACKETED, "(")):
        match = aside.search(window, near) if any(map(tail.__contains__, hints)) else None
        if match and _UP_TO_LAST_DIGIT.match(window, 0, match.start()):
            window = window[: match.start()]
    return _without_labels(window)


def _without_labels(text: str) -> str:
    """The text with the numbers of headings and of the items of a list blanked."""
    text = f"\n{text}"
    labels = [match.span(1) for match in _HEADING.finditer(text)]
    items = list(_ITEM.finditer(text))
    if not labels and not items:
        return text[1:]
    numbers = [-9, *(int(item[1]) for item in items), -9]
    for index, item in enumerate(items, 1):
        if numbers[index] - numbers[index - 1] == 1 or numbers[index + 1] - numbers[index] == 1:
            labels.append(item.span(1))
    if not labels:
        return text[1:]
    pieces = []
    last = 1
    for start, end in sorted(set(labels)):
        pieces += [text[last:start], " " * (end - start)]
        last = end
    return "".join(pieces) + text[last:]


def _last(window: str, base: int, num_parts: int) -> Found | None:
    digit = _UP_TO_LAST_DIGIT.match(window)
    end = digit.end() if digit else 0
    spans = math_spans(window)
    # "where $n$ is the number": a lone letter states nothing if anything else does.
    while spans and _LETTER_SPAN.fullmatch(spans[-1].text) and (end > 0 or len(spans) > 1):
        spans.pop()
    where: Where = "math"
    piece: Piece | None
    if spans and end <= spans[-1].end:
        piece = last_math(window, spans)
    elif (command := _last_command(window, spans[-1].end if spans else 0, end)) is not None:
        piece = _bare_math(window, command)
    else:
        where = "number"
        piece = last_number(window, end, num_parts) if end else None
    if piece and (whole := _OF_THE.search(window, max(piece.start - 20, 0), piece.start)):
        piece = last_number(window, whole.start() + 1, num_parts)
    if piece is None or len(window) - piece.end > _MAX_REMARK:
        return None
    if is_denied(window, piece.start) or is_rejected(window, piece.end):
        return None
    if _OR.search(window, max(piece.start - 32, 0), piece.start):
        return None
    if is_operand(window, piece.start):
        return None
    return _found(piece, where, base)


def _found(piece: Piece, where: Where, base: int) -> Found | None:
    text = tidy(piece.text)
    return Found(text, where, base + piece.start) if text else None


def _last_command(window: str, start: int, digit: int) -> int | None:
    """Index of the last LaTeX command outside of delimiters, unless a later line holds a number."""
    if "\\" not in window:
        return None
    last = None
    for command in _COMMAND.finditer(window, start):
        last = command.start()
    if last is None or _LINE_START.search(window, last, max(digit - 1, last)):
        return None
    return last


def _bare_math(window: str, command: int) -> Piece | None:
    r"""The expression around a command: ``4\sqrt{2}`` in "so the area is 4\sqrt{2}."."""
    *_, start = [0, *(match.end() for match in _LINE_START.finditer(window, 0, command))]
    stop = _LINE_START.search(window, command)
    end = stop.start() if stop else len(window)
    *_, start = [start, *(match.end() for match in _LEADS_TO.finditer(window, start, command))]
    text = window[start:end]
    if text.count("{") != text.count("}") or not is_math(text):
        return None
    return Piece(start, end, text)
