r"""Multiple choice and words: a letter is a letter, and a word is compared as written."""

from __future__ import annotations

import re

from rlgym_llm.lazy_pattern import lazy_pattern

__all__ = ["choice_of_gold", "choices", "has_words", "is_words", "same_word", "words"]

_TEXT = lazy_pattern(
    r"\\(?:text(?:bf|it|rm|sf|tt|up|normal)?|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}"
)
_GOLD = lazy_pattern(
    r"\s*(?:\(([A-Z])\)|\{?([A-J])\}?\)?(?:[.:](?!\S)|(?=\s)|$))\s*(.*)", re.DOTALL
)
_LETTER = lazy_pattern(r"(?<![A-Za-z\\])\(?([A-Za-z])\)?(?![A-Za-z'])")
_OPTION = lazy_pattern(r"\s*\(?([A-Za-z])(?:\)|[.:]|\s*$)\s*(.*)", re.DOTALL)
_OTHER = lazy_pattern(r"[^\w%+/.-]+", re.UNICODE)


def bare(text: str) -> str:
    """The text without the commands that set words in mathematics, and without dollar signs."""
    previous = None
    while previous != text:
        previous, text = text, _TEXT.sub(r"\1", text)
    return text.replace("$", "").strip()


def choice_of_gold(gold: str) -> tuple[str, str] | None:
    r"""The letter of a multiple-choice gold and the text of that option, else None.

    >>> choice_of_gold("(D) Alina"), choice_of_gold("C"), choice_of_gold("x")
    (('D', 'Alina'), ('C', ''), None)
    """
    match = _GOLD.fullmatch(bare(gold))
    if match is None:
        return None
    letter, text = match[1] or match[2], match[3]
    return None if text and not text[0].isalnum() else (letter, text)


def choices(text: str) -> list[str]:
    r"""The letters that an answer chooses, in capitals.

    >>> choices(r"\textbf{(B) } 12"), choices("b"), choices("A or B"), choices("ABCD")
    (['B'], ['B'], ['A', 'B'], [])
    """
    text = bare(text)
    option = _OPTION.fullmatch(text)
    if option is not None:
        return [option[1].upper()]
    if any(sign in text for sign in "*^=+<>"):
        return []
    letters = [letter for letter in _LETTER.findall(text) if letter.isupper()]
    return list(dict.fromkeys(letters))


def same_word(text: str, other: str) -> bool:
    r"""Whether both are one word of three letters or more, such as ``odd`` and ``\text{Odd}``.

    >>> same_word("odd", r"\text{Odd}"), same_word("ab", "AB"), same_word("x!", "x")
    (True, False, False)
    """
    one, another = (bare(side).strip(" .!?") for side in (text, other))
    is_word = (
        (len(one) >= 3 or one.casefold() == "no")
        and one.isalpha()
        and one.isupper() == another.isupper()
    )
    return is_word and one.casefold() == another.casefold()


def words(text: str) -> str:
    r"""Words for comparison: case, fonts, spaces and punctuation set aside.

    >>> words(r"\text{Yes}."), words("parallelogram")
    ('yes', 'parallelogram')
    """
    return " ".join(_OTHER.sub(" ", bare(text).casefold()).strip(" .").split())


_SPAN = lazy_pattern(r"\\[A-Za-z]+|\$[^$]*\$")
_WORD = lazy_pattern(r"[^\W\d_]{3,}")


def has_words(text: str) -> bool:
    r"""Whether there are words among the mathematics.

    >>> has_words(r"$x^a$ for some $a>0$"), has_words(r"\frac{x")
    (True, False)
    """
    return _WORD.search(_SPAN.sub(" ", bare(text))) is not None


def is_words(text: str) -> bool:
    """Whether an answer is words rather than mathematics: letters, and no operators."""
    plain = bare(text)
    return any(map(str.isalpha, plain)) and all(
        char.isalpha() or char.isspace() or char in ",.;:'’-!?()&" for char in plain
    )
