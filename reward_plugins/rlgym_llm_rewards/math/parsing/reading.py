"""Reads an answer's text, in every way that its commas allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.parsing.nodes import Node
from rlgym_llm_rewards.math.parsing.parse import parse
from rlgym_llm_rewards.math.parsing.tokens import MAX_CHARS, Comma, LimitError, UnreadableError
from rlgym_llm_rewards.math.policy import Policy

__all__ = ["Reading", "Trees", "read"]

_DOUBLED = lazy_pattern(r"\\\\(?=[A-Za-z{}])")
_THOUSANDS = lazy_pattern(r"(?<![\d,])[1-9]\d{0,2}(?:(?:\{,\}|,)\d{3})+(?!\d)")
_BRACKETED = lazy_pattern(r"[(\[].*[)\]]|\\\{.*\\\}", re.DOTALL)
_COMMA = lazy_pattern(r"\d(?:\{,\}|,)\d")


Trees = tuple[tuple[Comma, Node], ...]
"""The ways to read a text, each with what a comma between digits is in it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The trees of a text, or the reason why there is none."""

    trees: Trees
    problem: str | None = None
    is_limit: bool = False
    """Whether it could not be read for its size."""


def read(text: str, policy: Policy) -> Reading:
    r"""Every reading of the text, the usual one first.

    >>> [comma for comma, _ in read("3,5", Policy()).trees]
    ['thousands', 'decimal']
    """
    if len(text) > MAX_CHARS:
        return Reading((), f"an answer of {len(text)} characters", True)
    return _read(text, policy.decimal_comma, policy.imaginary_unit)


@lru_cache(maxsize=1024)  # siblings share their gold, and often their answer
def _read(text: str, decimal_comma: str, imaginary: str) -> Reading:
    text = _without_edges(text)
    if text.lower() in _NAMED:
        return Reading((("thousands", Node("const", (_NAMED[text.lower()],))),))
    if "\\\\" in text and r"\begin" not in text:  # escaped once too often
        text = _DOUBLED.sub(r"\\", text)
    commas: list[Comma] = ["thousands"]
    if _COMMA.search(text):
        outside = _BRACKETED.sub("", text)
        is_decimal = _COMMA.search(_THOUSANDS.sub("", outside)) is not None
        auto: list[Comma] = ["thousands", "list", "decimal"]
        commas = auto if is_decimal else auto[:2]
        if decimal_comma != "auto":
            commas = ["decimal"] if decimal_comma == "always" else auto[:2]
    trees: list[tuple[Comma, Node]] = []
    problem: Exception | None = None
    for comma in commas:
        try:
            tree = parse(text, comma, imaginary)
        except (UnreadableError, LimitError) as unread:
            problem = problem or unread
        except RecursionError:
            problem = LimitError("nested too deeply")
        else:
            if tree not in [other for _, other in trees]:
                trees.append((comma, tree))
    if trees:
        return Reading(tuple(trees))
    return Reading((), str(problem), isinstance(problem, LimitError))


_WORDS_ONLY = lazy_pattern(r"\A\\text\{([A-Za-z ]+)\}\Z")
_AM_PM = lazy_pattern(r"(?<=\d)\s*([ap])\.\s?m\.?\Z", re.IGNORECASE)
_NAMED = {
    "all real numbers": "reals", "all reals": "reals", "infinity": "oo", "no solution": "empty",
    "no solutions": "empty", "no real solution": "empty", "no real solutions": "empty",
}  # fmt: skip
"""What people name in words."""


_MACROS = (r"\,", r"\;", r"\:", r"\!", r"\ ", r"\qquad", r"\quad")


def _without_edges(text: str) -> str:
    """The text without spaces, dollar signs and punctuation around it."""
    length = -1
    while len(text) != length:
        length = len(text)
        text = text.strip(" \t\r\n$~").rstrip(",;:")
        for macro in _MACROS:
            text = text.removeprefix(macro).removesuffix(macro)
        text = text.rstrip("\\")  # what is left of a macro cut short
        if not text.endswith(".."):
            text = text.removesuffix(".")
    if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`":
        text = text[1:-1]
    text = _WORDS_ONLY.sub(r"\1", text)
    return _AM_PM.sub(r" \1m", text).replace("{:}", ":")
