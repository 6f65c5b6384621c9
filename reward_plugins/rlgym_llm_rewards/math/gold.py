"""A gold answer, read once: siblings of a group share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rlgym_llm_rewards.math.algebra.effort import EffortError, begin
from rlgym_llm_rewards.math.algebra.form import UndefinedError
from rlgym_llm_rewards.math.choice import choice_of_gold, has_words, is_words
from rlgym_llm_rewards.math.extraction.extract import extract_gold
from rlgym_llm_rewards.math.number import Number, parse_number
from rlgym_llm_rewards.math.parsing.nodes import Node
from rlgym_llm_rewards.math.parsing.reading import Trees, read
from rlgym_llm_rewards.math.parsing.tokens import MAX_CHARS, UnreadableError
from rlgym_llm_rewards.math.policy import Policy
from rlgym_llm_rewards.math.relations import is_consistent
from rlgym_llm_rewards.math.shape import elements, expand
from rlgym_llm_rewards.math.values import Comparison, UndecidedError, form_of, split_unit

__all__ = ["Gold", "read_gold"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gold:
    """A gold answer, read; two of them are equal only if they are the same object."""

    text: str
    number: Number | None = None
    choice: tuple[str, str] | None = None
    """The letter of multiple choice and that option's text."""
    trees: Trees = ()
    num_parts: int = 1
    """How many elements it has."""
    is_large: bool = False
    """Whether it is too large to be read, so that only the same text is right."""
    problem: str | None = None
    """Why it cannot be read."""


def read_gold(gold: str, policy: Policy) -> Gold:
    r"""The gold answer of a text, which may be a whole solution; never raises.

    >>> read_gold("5 + 2 = 7\n#### 7", Policy()).text, read_gold(r"\frac{1}{0}", Policy()).problem
    ('7', 'the gold answer cannot be right: a division by zero')
    """
    return _remembered(gold, policy) if len(gold) <= MAX_CHARS else _read(gold, policy)


def _read(gold: str, policy: Policy) -> Gold:
    text = gold if gold.isalnum() else extract_gold(gold)
    number = parse_number(text)
    if number is not None:
        return Gold(text=text, number=number)
    if not text:
        return Gold(text=text, problem="the gold answer is empty")
    begin()
    choice = choice_of_gold(text)
    reading = read(text, policy)
    if reading.trees:
        flaws = [_flaw(tree, policy) for _, tree in reading.trees]
        if all(flaws):
            return Gold(text=text, problem=f"the gold answer cannot be right: {flaws[0]}")
        trees = tuple(t for t, flaw in zip(reading.trees, flaws, strict=True) if flaw is None)
        parts = len(elements(expand(trees[0][1])))
        return Gold(text=text, choice=choice, trees=trees, num_parts=parts)
    if choice is not None or has_words(text) or is_words(text) or reading.is_limit:
        return Gold(text=text, choice=choice, is_large=reading.is_limit)
    return Gold(text=text, problem=f"the gold answer cannot be read: {reading.problem}")


_remembered = lru_cache(maxsize=1024)(_read)


def _flaw(tree: Node, policy: Policy) -> str | None:
    """Why a value does not exist or contradicts itself, None where all is well."""
    try:
        if not is_consistent(tree, Comparison(policy, lambda left, right: None)):
            return "it sets different numbers equal"
        form_of(tree)
    except UndefinedError as undefined:
        return None if split_unit(tree)[0].head == "time" else str(undefined)
    except (UnreadableError, EffortError, UndecidedError, RecursionError):
        pass  # no single value (a list, a set, a relation), or a costly one
    return None
