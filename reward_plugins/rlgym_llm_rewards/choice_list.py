"""The choices of one task: their labels and texts, and which one a text names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlgym_llm_rewards.denied_choices import without_denied
from rlgym_llm_rewards.math.choice import choice_of_gold, choices, is_words, words
from rlgym_llm_rewards.math.number import parse_number

__all__ = ["LETTERS", "ChoiceList", "choice_list", "repeated_text"]

LETTERS = "ABCDEFGHIJ"
"""What a choice may be called."""

_LABEL = re.compile(r"(?<!\w)\(?([A-J])(?:\)|[.:](?=\s|$))")
_OR_LABEL = re.compile(r"\bor\s+(?:maybe\s+|perhaps\s+)?\(?([A-J])(?![\w'’])")
_NAME = re.compile(r"(?:(?:option|choice|answer)\s+)?\(?([A-J])(?:[).:\s]+(.*))?", re.DOTALL)
_EDGE = " \t*_`$.:)(-–—"
_MAX_CHARS = 2000
"""A longer answer names nothing."""
_MAX_START = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceList:
    """Choices by their letters, in order."""

    texts: tuple[str, ...] = ()
    """Empty where only letters are known."""
    labels: tuple[str, ...] = tuple(LETTERS)
    """What the choices are called in the prompt; as many as there are texts."""

    def of_gold(self, gold: str, index_base: int | None = None) -> str | None:
        """The label of the gold answer: a label, a position from ``index_base``, or a text.

        >>> cities = choice_list(["Paris", "Rome"])
        >>> cities.of_gold("B"), cities.of_gold("(B) Rome"), cities.of_gold("Rome")
        ('B', 'B', 'B')
        >>> cities.of_gold("0", index_base=0), cities.of_gold("C"), cities.of_gold("Rom")
        ('A', None, None)
        """
        gold = gold.strip()
        if index_base is not None:
            index = int(gold) - index_base if gold.isascii() and gold.isdecimal() else -1
            return self.labels[index] if 0 <= index < len(self.labels) else None
        if gold in self.labels:
            return gold
        if named := self.named(gold):
            return named[0] if len(named) == 1 else None
        choice = choice_of_gold(gold)
        return choice[0] if choice is not None and choice[0] in self.labels else None

    def named(self, answer: str) -> tuple[str, ...]:
        """The labels that an answer names, by letter or by text; several where it is undecided.

        A letter beside the text of another choice names both; a choice that is set aside ("Rome,
        not Oslo") is not named.

        >>> cities = choice_list(["Paris", "Rome"])
        >>> cities.named("(b)"), cities.named("rome"), cities.named("(A) Rome"), cities.named("C")
        (('B',), ('B',), ('A', 'B'), ())
        """
        if len(answer) > _MAX_CHARS:
            return ()
        answer = unicodedata.normalize("NFKC", answer).strip()
        if answer in self.labels:
            return (answer,)
        if by_text := self.with_text(answer):
            return by_text
        if (kept := self.without_denied(answer)) != answer:
            return self.named(kept)
        named = choices(answer)
        if len(named) == 1:
            named += self.beside(answer, named[0])
        return tuple(label for label in dict.fromkeys(named) if label in self.labels)

    def beside(self, line: str, letter: str) -> tuple[str, ...]:
        """What a line names behind the letter: another choice's text, or others with theirs.

        >>> cities = choice_list(["Paris", "Rome"])
        >>> cities.beside("A) Paris or B", "A"), cities.beside("A, for B is wrong", "A")
        (('B',), ())
        """
        start = re.search(rf"(?<!\w){re.escape(letter)}(?!\w)", line, re.IGNORECASE)
        rest = self.without_denied(line[start.end() :]) if start else ""
        named = {self._start(rest), *_OR_LABEL.findall(rest)}
        named |= {
            match[1]
            for match in _LABEL.finditer(rest)
            if self._start(rest[match.end() :]) == match[1]
        }
        return tuple(label for label in self.labels if label in named - {letter})

    def without_denied(self, said: str) -> str:
        """The text without the choices that it sets aside.

        >>> cities = choice_list(["Oslo", "Rome"])
        >>> cities.without_denied("It is Rome, not Oslo."), cities.without_denied("B, not A) Oslo")
        ('It is Rome.', 'B')
        """
        return without_denied(said, lambda name: self.only(name) != ())

    def only(self, said: str) -> tuple[str, ...]:
        """The label of the choice that this is and nothing else: its letter, its text, or both.

        >>> cities = choice_list(["Oslo", "Rome"])
        >>> cities.only("B) Rome"), cities.only("option B"), cities.only("B) Oslo")
        (('B',), ('B',), ())
        """
        if said in self.labels:
            return (said,)
        if by_text := self.with_text(said):
            return by_text
        name = _NAME.fullmatch(said)
        if name is None or name[1] not in self.labels:
            return ()
        is_it = not name[2] or self.with_text(name[2]) == (name[1],)
        return (name[1],) if is_it else ()

    def _start(self, rest: str) -> str | None:
        """The choice whose text is the longest that ``rest`` starts with, as whole words."""
        said = _plain(rest[:_MAX_START].lstrip(_EDGE)) + " "
        starts = [
            (len(text), label)
            for label, text in zip(self.labels, map(_plain, self.texts), strict=False)
            if text and said.startswith(text) and not said[len(text) - 1 : len(text) + 1].isalnum()
        ]
        return max(starts)[1] if starts else None

    def with_text(self, said: str) -> tuple[str, ...]:
        """The labels of the choices that say the same, by the strictest comparison that finds one.

        >>> choice_list(["x > 2", "5"]).with_text("X > 2"), choice_list(["5", "1"]).with_text("5.0")
        (('A',), ('A',))
        >>> choice_list(["x > 2", "5"]).with_text("x < 2"), choice_list(["5", "1"]).with_text("-5")
        ((), ())
        """
        for same in (_is_same_text, _is_same_number, _are_same_words):
            found = tuple(
                label
                for label, text in zip(self.labels, self.texts, strict=False)
                if same(said, text)
            )
            if found:
                return found
        return ()


def choice_list(column: Any, num_choices: int | None = None) -> ChoiceList:
    """The choices that a column holds: texts, texts by label, or ARC's ``{label, text}``.

    ``num_choices`` where there is no column; 10 letters where neither is known. ValueError tells
    what is wrong with a column: not as many labels as texts, one choice alone, a label twice.

    >>> choice_list({"label": ["1", "2"], "text": ["tin", "gold"]}).named("2")
    ('2',)
    >>> choice_list({"A": "tin", "B": "gold"}).named("gold"), choice_list(None, 4).named("E")
    (('B',), ())
    """
    if column is None:
        return ChoiceList(labels=tuple(LETTERS[: num_choices or len(LETTERS)]))
    if isinstance(column, Mapping):
        if set(column) >= {"label", "text"}:
            labels, texts = list(column["label"]), list(column["text"])
        else:
            labels, texts = list(column), list(column.values())
    elif isinstance(column, Sequence) and not isinstance(column, str):
        labels, texts = list(LETTERS[: len(column)]), list(column)
    else:
        raise ValueError(f"choices are a list or a mapping, not a {type(column).__name__}")
    if len(labels) != len(texts) or not texts:
        raise ValueError(f"there are {len(texts)} choices and {len(labels)} labels for them")
    if len(texts) == 1:
        raise ValueError(f"there is but one choice, {str(texts[0])!r}; give two or more")
    named = tuple(label.upper() if len(label) == 1 else label for label in map(str, labels))
    if twice := _repeated(named):
        raise ValueError(f"two choices have the label {twice!r}")
    return ChoiceList(texts=tuple(map(str, texts)), labels=named)


def repeated_text(known: ChoiceList) -> str | None:
    """The first text that two choices share, whatever its case and spaces; None without one.

    Rows of data have such choices at times, and a letter still decides between them.

    >>> [repeated_text(choice_list(texts)) for texts in (["Oslo", "Rome", " oslo"], ["1", "2"])]
    [' oslo', None]
    """
    plain = _repeated([_plain(text) for text in known.texts])
    return next((text for text in reversed(known.texts) if _plain(text) == plain), None)


def _repeated(texts: Sequence[str]) -> str | None:
    return next((text for place, text in enumerate(texts) if text in texts[:place]), None)


def _is_same_text(said: str, text: str) -> bool:
    return _plain(said) == _plain(text) != ""


def _are_same_words(said: str, text: str) -> bool:
    # What is compared without its signs must have none: x > 2 is not x < 2.
    return is_words(said) and is_words(text) and words(said) == words(text) != ""


def _is_same_number(said: str, text: str) -> bool:
    one, other = parse_number(said), parse_number(text)
    return one is not None and other is not None and one.same_as(other)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")
