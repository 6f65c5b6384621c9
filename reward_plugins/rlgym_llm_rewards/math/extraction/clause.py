"""Cut the answer out of the clause that follows "the answer is"."""

from __future__ import annotations

import re

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.extraction.denial import is_bound, is_operand, without_negation
from rlgym_llm_rewards.math.extraction.letters import last_letter
from rlgym_llm_rewards.math.extraction.spans import (
    SCRIPT,
    THOUSANDS,
    first_math,
    last_math,
    last_number,
    math_spans,
    tidy,
)

__all__ = ["answer_in", "denied_in", "is_plain"]

_MAX_CLAUSE = 4096

_LEAD = lazy_pattern(
    r"""(?:\s*[=-]{3,}[ \t]*(?=\n))?+ [\s*_`"“”':：}]*+
    (?:(?:therefore|thus|hence|then|simply|just|clearly|exactly|indeed|surely|definitely|certainly
        |probably|likely|actually|now|still|also|either|for\s+sure|approximately|approx\.|about|around
        |roughly|equal\s+to|given\s+by|donc|also|option|choice|letter|the\s+following|the|an
        |an?\s+(?:grand\s+)?(?:total|maximum|minimum)\s+of)\b
      [\s,:*_]*+)*+""",
    re.VERBOSE | re.IGNORECASE,
)
# What is said of an answer instead of it.
_REMARK = lazy_pattern(
    r"""(?:(?:found|obtained|calculated|computed|determined|derived|reached|based|as\s+follows)\b
    | (?:correct|right|wrong|incorrect|reasonable|clear|obvious|above|below|shown|unknown)
      \b(?!\s*=))""",
    re.VERBOSE | re.IGNORECASE,
)
_REJECTED = lazy_pattern(
    r"\S{1,40}\s+(?:is|was|would\s+be)\s+(?:an?\s+)?(?:wrong|incorrect|not\b)", re.IGNORECASE
)
_END = lazy_pattern(r"[.?!](?=[\s*_\"”')\]]|$)(?<!\d!)|[。！？]|\n|</|<?\|[a-z_]+\|>")
_STARTS_PLAIN = lazy_pattern(
    r"""[-−+±]?[\d$€£¥(\[{\\|√.<>≤≥∞½¼¾] | [A-Za-zα-ω](?![A-Za-z]) | [A-Z]{2,3}\s*[=(<>]
    | (?:sqrt|pi|sin|cos|tan|log|ln|exp)\b""",
    re.VERBOSE,
)
# Where an answer that starts like mathematics goes over into prose.
_FUNCTION = r"(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|frac|and|or|[a-z]\b)"
_PROSE = lazy_pattern(
    rf"""(?:[,;:]|(?<!\s))\s+(?:because|since|so|which|as|where|for|when|if|in(?=\s+\w)|after|from|with|by|that|hence|thus
        |therefore|but|it|this|is|was|has|due|parce|car|donc|weil|non|not|rather)\b(?!\s*=)
    | (?<=[\d%}}$])\s+of\s+(?:the|them|all|these|those|his|her|its|their|our|my)\b
    | [,;:]\s+(?!{_FUNCTION})(?=[^\W\d_]{{2,}}(?!\s*=))
    | \s[-–—]\s+(?=[^\W\d_]{{3,}}) | \s\((?=[^\W\d_]{{3,}}|[^\W\d_]{{2}}\s|[a-z]\.[a-z]\b) | [，；]
    | (?<=[\d)}}\]])\s?{SCRIPT}(?!(?:[和与及或、и]|или)\s?[-−$\\(\d])""",
    re.VERBOSE,
)
_REASON = lazy_pattern(
    r"(?:[,;]|(?<!\s))\s+(?:because|since|so|where|as|and\s+so|which(?!\s+(?:makes|gives|equals|totals)))\b|[，；]"
)
# The first letter decides where others are only talked about: "B: A is too small".
_FIRST_LETTER = lazy_pattern(
    r"\(?[A-J]\)?+(?![A-Za-z0-9])"
    r"(?![\s*`_]*(?:[,/;(]|\b(?=[aomp]))[\s*`_]*"
    r"(?:(?:or|and|maybe|perhaps|possibly)\b[\s*`_]*){0,2}\(?[A-J]\b)"
)
_IN_BRACKETS = lazy_pattern(r"\(([^(),]*=[^(),]*)\)")
_CALCULATION = lazy_pattern(r"<<[^<>\n]*+>>")  # the calculator's part of "2 * 3 = <<2*3=6>>6"
_ONE_NUMBER = lazy_pattern(rf"{THOUSANDS}|\d+(?:[.,]\d+)*")
_WORDS = lazy_pattern(r"[^\W\d_]{2,}")
_LEADS_TO = lazy_pattern(
    r"=\s*|\b(?:is|are|was|were|makes|gives|equals|totals?|becomes|est|ist|es|é|è|son|sind)\s+"
    r"(?:igual\s+a|égale?\s+à|gleich)?\s*|(?:是|等于)\s*"
)
_VALUE = lazy_pattern(r"[$\\(\[{|√]*[-−+±]?[$€£¥(\[{\\|√]*[\d½¼¾π∞√\\]")
_IS_VALUE = lazy_pattern(rf"(?<!\s)\s+(?:is|are|was|equals?)\s+{_VALUE.pattern}")
# "3 pens and 5 more, so 8"
_RESULT = lazy_pattern(
    rf"(?<=[^\W\d_]),?\s(?:so|thus|hence|making|which\s+(?:makes|gives|is))\s"
    rf"(?:(?:it\s+is|that\s+is|in\s+total|a\s+total\s+of)\s)?(?={_VALUE.pattern})"
)
_CONTINUES = lazy_pattern(r"\s*(?:[=<>≈+*/^]|,?\s*(?:or|and)\s+(?:\\?[\d$\\(]|-\d))")
_PLAIN = lazy_pattern(r"[-−]?\$?\d+(?:[.,]\d+)*(?:/\d+)?%?")


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
    if "<<" in text:
        text = _CALCULATION.sub("", text)
    lead = _LEAD.match(text)
    text = text[lead.end() :] if lead else text
    if without_negation(text) is not None or _REJECTED.match(text):
        return None
    end = _END.search(text, 1)
    clause = text[: end.start()] if end else text
    if is_bound(clause):  # no value, and not readable as one
        return tidy(clause)
    spans = math_spans(text)
    is_subject = False
    if spans and spans[0].start == 0:
        group = first_math(text, spans)
        is_subject = _IS_VALUE.match(text, group.end) is not None
        if not is_subject and not _CONTINUES.match(text, group.end):
            return tidy(group.text)
    if wants_choice:
        letter = last_letter(clause) if len(clause) < 600 else None
        if letter is not None:
            first = _FIRST_LETTER.match(clause)
            return first[0] if first else letter.text
    if spans and (spans[0].start > 0 or is_subject):
        within = [span for span in spans if span.start < len(clause)]
        if within:
            value = _behind_verb(clause, within[-1].end)
            if value is not None:
                return _of_sentence(clause, value, num_parts)
            return tidy(last_math(text, within).text)
        if clause.endswith(":") or not clause.strip():
            return tidy(first_math(text, spans).text)
    if _REMARK.match(clause):
        return ""
    return _trimmed(clause.replace("**", ""), num_parts)


def denied_in(text: str) -> str | None:
    """The answer that the text after a marker says is none: "5" in "not 5", None without any."""
    lead = _LEAD.match(text[:_MAX_CLAUSE])
    rest = without_negation(text[lead.end() if lead else 0 : _MAX_CLAUSE])
    return answer_in(rest) if rest else None


def _behind_verb(clause: str, start: int = 0) -> int | None:
    """Where the value after the last "is" or "=" starts: at 34 in "the largest n is 34"."""
    verbs = [verb.end() for verb in _LEADS_TO.finditer(clause, start)]
    return next((end for end in reversed(verbs) if _VALUE.match(clause, end)), None)


def _trimmed(clause: str, num_parts: int) -> str:
    if _STARTS_PLAIN.match(clause):
        kept = _up_to_prose(clause)
        if (result := _RESULT.search(clause)) and len(_ONE_NUMBER.findall(kept)) > 1:
            return _up_to_prose(clause[result.end() :])
        if len(_WORDS.findall(kept)) <= 4 or "\\" in kept:
            return kept
        clause = kept
    else:
        reason = _REASON.search(clause)
        clause = clause[: reason.start()] if reason else clause
    if len(_WORDS.findall(clause)) < 2:
        return tidy(clause)
    return _of_sentence(clause, _behind_verb(clause), num_parts)


def _up_to_prose(clause: str) -> str:
    prose = _PROSE.search(clause)
    kept = tidy(clause[: prose.start()] if prose else clause)
    equation = _IN_BRACKETS.fullmatch(kept)
    return equation[1] if equation else kept


def _of_sentence(clause: str, value: int | None, num_parts: int) -> str:
    """The value that starts there, or the first number from there on or behind the last verb."""
    if value is not None:
        kept = _up_to_prose(clause[value:])
        is_whole = kept.count("(") == kept.count(")")
        if is_whole and ("\\" in kept or not _WORDS.search(kept)):
            return kept
    numbers = list(_ONE_NUMBER.finditer(clause))
    if not numbers:
        return tidy(clause)
    *_, leads = [0, *(verb.end() for verb in _LEADS_TO.finditer(clause))]
    leads = leads if value is None else value
    first = next((number for number in numbers if number.start() >= leads), numbers[0])
    number = last_number(clause, first.end(), num_parts)
    return tidy(clause if number is None or is_operand(clause, number.start) else number.text)
