"""What a format demands of a completion, and which of its demands are met."""

from __future__ import annotations

import re
from typing import NamedTuple

from rlgym_llm_rewards.math.extraction.boxes import find_boxes
from rlgym_llm_rewards.math.extraction.visible import without_thinking
from rlgym_llm_rewards.math.number import parse_number

__all__ = ["Demand", "box_demands", "hash_demands", "is_blank", "tag_demands"]

# Characters that are printed but show nothing: they are no thinking and no answer.
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_THINKING = r"think(?:ing)?|reasoning|thought"
_THINKING_TAG = re.compile(rf"<(/?)(?:{_THINKING})>")
_TAG_IN_ANSWER = re.compile(rf"<\s?/?\s?(?:{_THINKING}|answer)\b[^<>]{{0,40}}>", re.IGNORECASE)


class Demand(NamedTuple):
    """One thing that is asked for."""

    is_met: bool
    complaint: str
    """What to say where it is not met."""


def is_blank(text: str) -> bool:
    r"""Whether a text shows nothing: white space, format and control characters, fillers.

    >>> is_blank(" \n"), is_blank("\u200b"), is_blank("½")
    (True, True, False)
    """
    return not any(
        char.isprintable() and not char.isspace() and char not in _BLANKS for char in text
    )


def tag_demands(
    text: str,
    tags: tuple[str, ...],
    *,
    may_be_empty: tuple[str, ...] = (),
    text_after: bool = False,
) -> list[Demand]:
    """Each tag once, each part not empty, in order, nothing outside: 2k + 2 demands of k tags.

    A tag of ``may_be_empty`` has one demand less. ``text_after`` asks for text behind the last
    tag, one demand more, where otherwise only white space may stand. A tag in another writing
    (``</Answer>``, ``<answer >``) counts as a repetition.

    >>> demands = tag_demands("<think>a</think><answer>7</answer> bye", ("think", "answer"))
    >>> sum(demand.is_met for demand in demands), len(demands)
    (5, 6)
    >>> next(demand.complaint for demand in demands if not demand.is_met)
    'there is text outside the tags'
    """
    demands, parts = [], []
    for tag in tags:
        complaint = _not_once(text, tag)
        demands.append(Demand(complaint is None, complaint or ""))
        parts.append(_span(text, tag) if complaint is None else None)
    for tag, part in zip(tags, parts, strict=True):
        if tag not in may_be_empty:
            is_met = part is not None and not is_blank(text[slice(*part[1:3])])
            demands.append(Demand(is_met, f"<{tag}> is empty"))
    end, outside, in_order = 0, "", True
    for part in parts:
        in_order = in_order and part is not None and part[0] >= end
        if in_order and part is not None:
            outside += text[end : part[0]]
            end = part[3]
    rest = text[end:]
    demands.append(Demand(in_order, "the tags are out of order"))
    outside += "" if text_after else rest
    demands.append(Demand(in_order and not outside.strip(), "there is text outside the tags"))
    if text_after:
        is_met = in_order and not is_blank(rest)
        demands.append(Demand(is_met, f"there is no text behind </{tags[-1]}>"))
    return demands


def _not_once(text: str, tag: str) -> str | None:
    """The complaint where the opening or the closing tag does not stand there once."""
    for exact in (f"<{tag}>", f"</{tag}>"):
        count = text.count(exact)
        if count != 1:
            return f"{exact} stands there {count} times, not once"
    loose = re.compile(rf"<\s?/?\s?{re.escape(tag)}(?![\w-])[^<>]{{0,40}}>", re.IGNORECASE)
    for other in loose.finditer(text):
        if other[0] not in (f"<{tag}>", f"</{tag}>"):
            return f"{other[0]} stands there beside <{tag}>"
    return None


def _span(text: str, tag: str) -> tuple[int, int, int, int] | None:
    """Where the one block starts, its part starts and ends, and the block ends."""
    start, stop = text.index(f"<{tag}>"), text.index(f"</{tag}>")
    inner = start + len(tag) + 2
    return (start, inner, stop, stop + len(tag) + 3) if inner <= stop else None


def hash_demands(text: str, *, require_reasoning: bool = False) -> list[Demand]:
    r"""The last line is ``#### number``; no other is; and text stands before it, where asked for.

    Thinking (`without_thinking`) shows no answer, and is reasoning.

    >>> [demand.is_met for demand in hash_demands("12 + 60 = 72\n#### 72")]
    [True, True]
    >>> [demand.is_met for demand in hash_demands("<think>\n#### 72\n</think>")]
    [False, False]
    """
    seen, flaw = _seen(text)
    body, _, last_line = seen.rstrip().rpartition("\n")
    is_last = flaw is None and _is_answer_line(last_line)
    is_only = is_last and not any(map(_is_answer_line, body.split("\n")))
    demands = [
        Demand(is_last, flaw or "the last line is no '#### number'"),
        Demand(is_only, "there is more than one '#### number' line"),
    ]
    if require_reasoning:
        demands.append(_reasoning(is_last, text[: len(body)]))
    return demands


def box_demands(text: str, *, require_reasoning: bool = False) -> list[Demand]:
    r"""A balanced ``\boxed{...}`` that is not empty; no other box; and reasoning, where asked for.

    Thinking (`without_thinking`) shows no answer, and is reasoning.

    >>> [demand.is_met for demand in box_demands(r"\boxed{1} or \boxed{2}")]
    [True, False]
    """
    seen, flaw = _seen(text)
    every = find_boxes(seen)
    found = [
        box for box in every if seen.startswith("\\boxed", box.start) and box.end > box.inner_end
    ]
    count = max(seen.count("\\boxed"), len(every))
    inner = text[found[-1].inner : found[-1].inner_end] if found else ""
    if flaw is None and not found:
        flaw = "there is no balanced \\boxed{}"
    elif flaw is None and is_blank(inner):
        flaw = "the \\boxed{} is empty"
    elif flaw is None and _TAG_IN_ANSWER.search(inner):
        flaw = "there is a tag in the \\boxed{}"
    demands = [
        Demand(flaw is None, flaw or ""),
        Demand(flaw is None and count == 1, f"there are {count} boxes, not one"),
    ]
    if require_reasoning:
        demands.append(_reasoning(flaw is None, text[: found[0].start] if found else ""))
    return demands


def _seen(text: str) -> tuple[str, str | None]:
    """The text with its thinking blanked, and what is wrong with that thinking."""
    seen, _ = without_thinking(text)
    tags = _THINKING_TAG.findall(text)
    if tags and tags[-1] != "/":
        return seen, "the thinking is not closed"
    if len(tags) > 2 or tags.count("/") > 1:
        return seen, "there is more than one block of thinking"
    return seen, None


def _is_answer_line(line: str) -> bool:
    line = line.strip()
    return line.startswith("####") and parse_number(line[4:]) is not None


def _reasoning(is_answered: bool, before: str) -> Demand:
    is_met = is_answered and not is_blank(_THINKING_TAG.sub("", before))
    return Demand(is_met, "there is no reasoning before the answer")
