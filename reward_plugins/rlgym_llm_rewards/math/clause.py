"""Cut the answer out of the clause that follows "the answer is"."""

from __future__ import annotations

import re

from rlgym_llm_rewards.math.spans import (
    SCRIPT,
    first_math,
    last_letter,
    last_math,
    last_number,
    math_spans,
    tidy,
)

__all__ = ["answer_in", "is_plain"]

_MAX_CLAUSE = 4096

_LEAD = re.compile(
    r"""[\s*_`"“”':：]*+
    (?:(?:therefore|thus|hence|then|simply|just|clearly|exactly|indeed|surely|definitely|certainly
        |probably|likely|actually|now|still|also|either|for\s+sure|approximately|approx\.|about|around
        |roughly|equal\s+to|given\s+by|donc|also|option|choice|letter|the\s+following|the|an)\b
      [\s,:*_]*+)*+""",
    re.VERBOSE | re.IGNORECASE,
)
_NEGATED = re.compile(r"(?:not|never|neither|no\s+longer|nicht|pas|不是)\b", re.IGNORECASE)
# What is said of an answer instead of it.
_REMARK = re.compile(
    r"""(?:(?:found|obtained|calculated|computed|determined|derived|reached|based|as\s+follows)\b
    | (?:correct|right|wrong|incorrect|reasonable|clear|obvious|above|below|shown|unknown)
      \b(?!\s*=))""",
    re.VERBOSE | re.IGNORECASE,
)
_REJECTED = re.compile(
    r"\S{1,40}\s+(?:is|was|would\s+be)\s+(?:an?\s+)?(?:wrong|incorrect|not\b)", re.IGNORECASE
)
_END = re.compile(r"[.?!](?=[\s*_\"”')\]]|$)(?<!\d!)|[。！？]|\n|</|<?\|[a-z_]+\|>")
_STARTS_PLAIN = re.compile(
    r"""[-−+±]?[\d$€£¥(\[{\\|√.<>≤≥∞½¼¾] | [A-Za-zα-ω](?![A-Za-z]) | [A-Z]{2,3}\s*[=(<>]
    | (?:sqrt|pi|sin|cos|tan|log|ln|exp)\b""",
    re.VERBOSE,
)
# Where an answer that starts like mathematics goes over into prose.
_FUNCTION = r"(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|frac|and|or|[a-z]\b)"
_PROSE = re.compile(
    rf"""[,;:]?\s+(?:because|since|so|which|as|where|for|when|if|in|after|from|with|by|that|hence|thus
        |therefore|but|it|this|is|was|has|due|parce|car|donc|weil|non|not|rather)\b(?!\s*=)
    | [,;:]\s+(?!{_FUNCTION})(?=[^\W\d_]{{2,}}(?!\s*=))
    | \s[-–—]\s+(?=[^\W\d_]{{3,}}) | \s\((?=[^\W\d_]{{3,}}) | [，；] | (?<=\d)\s?{SCRIPT}""",
    re.VERBOSE,
)
_REASON = re.compile(
    r"[,;]?\s+(?:because|since|so|where|as|and\s+so|which(?!\s+(?:makes|gives|equals|totals)))\b|[，；]"
)
# The first letter decides where others are only talked about: "B: A is too small".
_FIRST_LETTER = re.compile(
    r"\(?[A-J]\)?(?![A-Za-z0-9])(?!\s*(?:[,/;]|,?\s*(?:or|and)\b)\s*\(?[A-J]\b)"
)
_IN_BRACKETS = re.compile(r"\(([^(),]*=[^(),]*)\)")
_ONE_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORDS = re.compile(r"[^\W\d_]{2,}")
_LEADS_TO = re.compile(r"(?:=|\b(?:is|are|makes|gives|equals|totals?|becomes|est|son))\s")
_CONTINUES = re.compile(r"\s*(?:[=<>≈+*/^]|,?\s*(?:or|and)\s+(?:\\?[\d$\\(]|-\d))")
_PLAIN = re.compile(r"[-−]?\$?\d+(?:[.,]\d+)*(?:/\d+)?%?")


def is_plain(text: str) -> bool:
    """Whether the text is nothing but one number as it is mostly written."""
    return _PLAIN.fullmatch(text) is not None


def answer_in(text: str, *, wants_choice: bool = False, num_parts: int = 1) -> str | None:
    """The answer that the text after a marker begins with or holds.

    Empty where it states none ("found by adding"), None where it is negated ("not 42").
    Alternatives ("41 or 42") stay together.

    >>> answer_in(" 72, in total, so the farmer earns that much.")
    '72'
    >>> answer_in(" surely not 5.") is None, answer_in(" x = 5 or x = -3")
    (True, 'x = 5 or x = -3')
    """
    text = text[:_MAX_CLAUSE]
    lead = _LEAD.match(text)
    text = text[lead.end() :] if lead else text
    if _NEGATED.match(text) or _REJECTED.match(text):
        return None
    spans = math_spans(text)
    if spans and spans[0].start == 0:
        group = first_math(text, spans)
        if not _CONTINUES.match(text, group.end):
            return tidy(group.text)
    end = _END.search(text, 1)
    clause = text[: end.start()] if end else text
    if wants_choice:
        letter = last_letter(clause) if len(clause) < 600 else None
        if letter is not None:
            first = _FIRST_LETTER.match(clause)
            return first[0] if first else letter.text
    if spans and spans[0].start > 0:
        within = [span for span in spans if span.start < len(clause)]
        if within:
            return tidy(last_math(text, within).text)
        if clause.endswith(":") or not clause.strip():
            return tidy(first_math(text, spans).text)
    if _REMARK.match(clause):
        return ""
    return _trimmed(clause.replace("**", ""), num_parts)


def _trimmed(clause: str, num_parts: int) -> str:
    if _STARTS_PLAIN.match(clause):
        prose = _PROSE.search(clause)
        kept = tidy(clause[: prose.start()] if prose else clause)
        equation = _IN_BRACKETS.fullmatch(kept)
        kept = equation[1] if equation else kept
        if len(_WORDS.findall(kept)) <= 4 or "\\" in kept:
            return kept
        clause = kept
    else:
        reason = _REASON.search(clause)
        clause = clause[: reason.start()] if reason else clause
    numbers = list(_ONE_NUMBER.finditer(clause))
    if not numbers or len(_WORDS.findall(clause)) < 2:
        return tidy(clause)
    # A sentence: the number after its last "=" or "is", else its first one.
    *_, leads = [0, *(match.end() for match in _LEADS_TO.finditer(clause))]
    first = next((number for number in numbers if number.start() >= leads), numbers[0])
    number = last_number(clause, first.end(), num_parts)
    return tidy(number.text if number else clause)
