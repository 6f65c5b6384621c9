"""Find the final answer in a completion or in a gold text."""

from __future__ import annotations

import re

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.extraction.boxes import Box, answer_of, boxes, find_boxes, is_unclosed
from rlgym_llm_rewards.math.extraction.clause import answer_in, denied_in
from rlgym_llm_rewards.math.extraction.denial import (
    bounds_another,
    is_denied,
    is_rejected,
    rejects_itself,
)
from rlgym_llm_rewards.math.extraction.ending import LAST_NUMBER, at_the_end, in_last_line
from rlgym_llm_rewards.math.extraction.found import Found, Where
from rlgym_llm_rewards.math.extraction.markers import Marker, last_marker
from rlgym_llm_rewards.math.extraction.spans import math_spans, tidy
from rlgym_llm_rewards.math.extraction.unmarked import last_statement
from rlgym_llm_rewards.math.extraction.visible import (
    is_untouched,
    without_prompt,
    without_records,
    without_thinking,
    without_turns,
)
from rlgym_llm_rewards.math.parsing.units import is_known_unit, unit_name
from rlgym_llm_rewards.math.policy import Policy

__all__ = ["Found", "Where", "boxes", "extract", "extract_gold"]

_MAX_TRIES = 16
_SENTENCE_END = lazy_pattern(r"[.?!](?=\s|$)|\n")
_OR_ELSE = lazy_pattern(
    r"""[\s$\\)*`]{0,6}
    (?: \b(?:or|oder|ou)\s+ (?:maybe\s+|perhaps\s+|possibly\s+|else\s+)?
      | [,;(]?\s* (?:or\s+)? (?:maybe|perhaps|possibly|alternatively),?\s+
        (?:it(?:\s+i|['’])s\s+)? )
    [$\\(*`]{0,3} ([-−]?\d[\d.,/]* | \(?[A-J]\b\)?)""",
    re.VERBOSE,
)
# A unit that stands behind a box, unless more words make another unit of it.
_UNIT = lazy_pattern(
    r"""(?:[$\s]|\\[),;!\s]){0,4} (?:\\text\{\s*)? ( \\?%(?!\s*\w)
      | (?:(?:square|cubic|sq\.?|cu\.?)\s)?
        (?P<name>[A-Za-z]{2,12} (?:/[a-z]{1,4}|\sper\s[a-z]{1,8})? | (?<=[\s{])[gmL])
        (?:[²³]|\^\{?[23]\}?)? (?![\w/]|\sper\b) )""",
    re.VERBOSE,
)
_NO_UNIT = frozenset("in unit units am pm cu US".split())
_STATES = lazy_pattern(r"\d|[=<>^\\√π∞]|^\W*[A-Z]\W*$|^\W*\w+\W*$")


def extract(
    completion: str,
    policy: Policy,
    *,
    prompt: str | None = None,
    wants_choice: bool = False,
    num_parts: int = 1,
) -> Found | None:
    r"""The completion's final answer by the policy, None where it states none.

    The last marker decides (a box, ``####``, an answer tag, "the answer is"), and where there is
    none, and the policy is not ``strict``, the last statement. ``prompt``: what is copied from it
    counts for nothing. ``wants_choice``: the gold is a letter, so that letters answer too.
    ``num_parts``: how many elements the gold has. Never raises on text; linear in it.

    >>> extract(r"First \boxed{5}. No, it is $\boxed{7}$.", Policy())
    Found(text='7', where='boxed', start=28, parts=())
    >>> extract("16 - 9 = 7\n#### 7", Policy()).where, extract("So 3+4=7.", Policy()).text
    ('hash', '7')
    >>> extract("The answer is not 42.", Policy()) is None
    True
    """
    text = without_turns(completion)
    if policy.thinking != "keep":
        text, closed = without_thinking(text)
        if policy.thinking == "require" and not closed:
            return None
    is_bare = prompt is None and not wants_choice
    last = at_the_end(text, policy) if is_bare else in_last_line(text, policy)
    if last is not None and (is_bare or is_untouched(text, last.start, prompt)):
        return last
    seen = without_records(text)
    if prompt is not None:
        seen = without_prompt(seen, prompt)
    if last is not None and seen == text:
        return last
    found_boxes = [box for box in find_boxes(seen) if text[box.inner : box.inner_end].strip()]
    answer, barred = _marked(text, seen, found_boxes, policy, wants_choice, num_parts)
    if answer is not None:
        return answer
    if (
        barred >= len(seen)
        or policy.require_box
        or policy.extraction == "strict"
        or is_unclosed(seen, found_boxes)
    ):
        return None
    stated = last_statement(
        seen,
        anywhere=policy.extraction == "lenient",
        wants_choice=wants_choice,
        num_parts=num_parts,
    )
    return None if stated is None or stated.start < barred else stated


def extract_gold(gold: str) -> str:
    r"""The answer within a gold text: a bare answer, or a whole solution that ends in a marker.

    >>> extract_gold(" 72 "), extract_gold("5 + 2 = 7\n#### 7"), extract_gold(r"so $x=\boxed{2}$.")
    ('72', '7', '2')
    """
    found = find_boxes(gold)
    if found:
        answer = answer_of(gold, found, num_parts=0)
        return answer.text
    for marker in ("####", "\nA:"):
        _, found_marker, behind = gold.rpartition(marker)
        if found_marker and behind.strip():
            return behind.strip().partition("\n")[0].strip()
    _, opened, behind = gold.rpartition("<answer>")
    if opened:
        gold = behind.partition("</answer>")[0]
    text = gold.strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        inner = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner.strip():
            return text if opening in inner or closing in inner else inner.strip()
    return text


def _marked(
    text: str,
    seen: str,
    found_boxes: list[Box],
    policy: Policy,
    wants_choice: bool,
    num_parts: int,
) -> tuple[Found | None, int]:
    """The last marked answer, and the index up to which an unmarked one is barred.

    A negated answer bars the whole text, a denied marker its own sentence.
    """
    barred = 0
    denied: set[str | None] = set()
    limit = len(seen)
    left = list(found_boxes)
    for _ in range(_MAX_TRIES):
        while left and left[-1].start >= limit:
            left.pop()
        box = left[-1] if left else None
        marker = None if policy.require_box else last_marker(seen, limit, wants_choice=wants_choice)
        if box is not None and (marker is None or marker.start < box.end):
            boxed = answer_of(text, left, num_parts)
            if not _is_negated(text, box) and not rejects_itself(boxed.text):
                if boxed.text in denied:
                    return None, len(seen)
                return _with_alternative(text, box.end, _with_unit(text, box, boxed)), barred
            denied.add(boxed.text)
            barred, limit = len(seen), box.start
            continue
        if marker is None:
            break
        limit = marker.start
        if marker.is_denied:
            end = _SENTENCE_END.search(seen, marker.end)
            barred = max(barred, end.end() if end else len(seen))
            denied.add(answer_in(text[marker.end : marker.stop]))
            continue
        number = LAST_NUMBER.match(text, marker.end)
        if number is not None and number[1] not in denied:
            return Found(number[1], marker.where, marker.start), barred
        said = text[marker.end : marker.stop]
        answer = _said(said, marker, wants_choice, num_parts)
        if answer is None or _is_taken_back(seen, marker, answer):
            barred = len(seen) if said.strip() else barred
            denied.add(answer or denied_in(said))
        elif answer in denied:
            return None, len(seen)
        elif answer and (box is None or marker.where != "phrase" or _STATES.search(answer)):
            found = Found(answer, marker.where, marker.start)
            at = text.find(answer, marker.end, marker.end + len(answer) + 200)
            return found if at < 0 else _with_alternative(text, at + len(answer), found), barred
    return None, barred


def _said(said: str, marker: Marker, wants_choice: bool, num_parts: int) -> str | None:
    if marker.where != "phrase":
        answer = tidy(said)
        # What stands in a tag or after #### is taken as written, unless it is a sentence.
        if len(answer) > 200 or answer.count(" ") < 4 or math_spans(answer):
            return None if rejects_itself(answer) else answer
    stated = answer_in(said, wants_choice=wants_choice, num_parts=num_parts)
    if stated is None or is_unclosed(stated, []) or rejects_itself(stated):
        return None
    return stated


def _is_taken_back(text: str, marker: Marker, answer: str) -> bool:
    """Whether what follows the answer rejects it: "42, which is wrong"."""
    at = text.find(answer, marker.end, marker.end + len(answer) + 200)
    return at >= 0 and is_rejected(text, at + len(answer))


def _is_negated(text: str, box: Box) -> bool:
    at = box.start
    return is_denied(text, at) or is_rejected(text, box.end) or bounds_another(text, at)


def _with_unit(text: str, box: Box, answer: Found) -> Found:
    r"""``\boxed{5} cm`` is 5 cm."""
    unit = _UNIT.match(text, box.end)
    if unit is None or not answer.text[-1:].isdecimal() or answer.parts:
        return answer
    name = unit["name"]
    if name and (name in _NO_UNIT or not is_known_unit(unit_name(name.split()))):
        return answer
    return Found(f"{answer.text} {unit[1]}", answer.where, answer.start)


def _with_alternative(text: str, end: int, answer: Found) -> Found:
    r"""``\boxed{41} or 42`` leaves the choice open, as "41 or 42" does."""
    other = _OR_ELSE.match(text, end)
    if other is None:
        return answer
    return Found(f"{answer.text} or {tidy(other[1])}", answer.where, answer.start)
