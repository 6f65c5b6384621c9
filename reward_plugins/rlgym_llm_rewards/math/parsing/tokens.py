r"""Cuts an answer into tokens: numbers with their separators, words, commands, signs."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal, NamedTuple

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.parsing.characters import to_ascii
from rlgym_llm_rewards.math.parsing.units import UNITS
from rlgym_llm_rewards.math.parsing.vocabulary import FUNCTIONS, IGNORED, SPACES, TEXT_FONTS

__all__ = [
    "MAX_CHARS",
    "MAX_DIGITS",
    "MAX_TOKENS",
    "Comma",
    "LimitError",
    "Token",
    "UnreadableError",
    "read_number",
    "tokenize",
]

MAX_CHARS = 4096
"""Longest answer that is read; longer ones are compared as strings only."""
MAX_TOKENS = 1500
MAX_DIGITS = 1000
"""Most digits of one number."""

Comma = Literal["thousands", "list", "decimal"]
"""What a comma between digits is, where it could be either."""


class UnreadableError(ValueError):
    """The text is no mathematics that can be read; the message says why."""


class LimitError(ValueError):
    """The text is too long, too deep, or its value too large."""


class Token(NamedTuple):
    """One token."""

    kind: Literal["number", "word", "command", "sign", "text", "end"]
    text: str
    spaced: bool
    """Whether white space stands before it."""


_JOINT = r"(?:\s?\{\s?,\s?\}|,?\\[,!;: ]\s*|\\ |,)"
_HEAD = r"(?:[1-9]\d{0,2}|0(?!,))"  # 0,111 is no thousand
_TAIL = r"(?:\.\d*)?(?:[eE][-+]?\d+(?![\d.]))?"
_REPEATING = (
    r"\d*\.\d*\\(?:overline|bar|dot)\s*\{\s*\d+\s*\}"
    r"|\d*\.\d*?(?P<cycle>\d)(?P=cycle){2,}(?:\.{3}|\\l?dots(?![A-Za-z]))"
)
_NUMBERS: dict[Comma, str] = {
    # Groups of three digits; a space joins them only where every group fits.
    "thousands": rf"{_HEAD}(?:(?:{_JOINT}\d{{3}})+|(?:[ ]\d{{3}})+)(?!\d|,\d){_TAIL}",
    "list": rf"{_HEAD}(?:(?:\{{,\}}|\\[,!])\d{{3}})+(?!\d){_TAIL}",
    "decimal": r"\d{1,3}(?:\.\d{3})+,\d+|\d+(?:\{,\}|,)\d+",
}
_SCANNERS: dict[Comma, re.Pattern[str]] = {
    comma: lazy_pattern(
        rf"(?P<space>\s+)|(?P<number>{_REPEATING}|{numbers}|\d+{_TAIL}|\.\d+)"
        r"|(?P<word>(?:or|and)(?=[A-Z0-9(\\])|[^\W\d_]+)|(?P<command>\\(?:[A-Za-z]+\*?|.))"
        r"|(?P<sign>\*\*|<=|>=|!=|==|=<|~=|//|[-+*/^_=<>()\[\]{}|,;:!%'&$~.€£¥₹¢])",
        re.DOTALL,
    )
    for comma, numbers in _NUMBERS.items()
}
_OPENING = frozenset(["(", "[", r"\{"])
_CLOSING = frozenset([")", "]", r"\}"])
_TEXT_ARGUMENT = lazy_pattern(r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}|\s+([A-Za-z])")
_COLOR = lazy_pattern(r"\s*\{[^{}]*\}")
_NO_LETTERS = lazy_pattern(r"[\W\d_]+")


_NEGATIONS = {"=": r"\ne ", r"\in": r"\notin "}
_NEGATED = lazy_pattern(r"\\not\s*(=|\\in\b)")


def tokenize(text: str, comma: Comma = "thousands") -> list[Token]:
    r"""The tokens, closed by one of kind ``end``; raises UnreadableError or LimitError.

    >>> [t.text for t in tokenize(r"\frac{1}{2}x \le 1,234")]
    ['\\frac', '{', '1', '}', '{', '2', '}', 'x', '\\le', '1,234', '']
    >>> [t.text for t in tokenize("(1,234)")]  # within brackets a comma sets apart
    ['(', '1', ',', '234', ')', '']
    """
    if len(text) > MAX_CHARS:
        raise LimitError(f"an answer of {len(text)} characters")
    tokens: list[Token] = []
    text = _NEGATED.sub(lambda match: _NEGATIONS[match[1]], to_ascii(text))
    _scan(text, comma, tokens)
    tokens.append(Token("end", "", False))
    return tokens


def _scan(text: str, comma: Comma, tokens: list[Token]) -> None:
    position, brackets, spaced = 0, 0, False
    while position < len(text):
        in_brackets = brackets > 0 and comma == "thousands"
        match = _SCANNERS["list" if in_brackets else comma].match(text, position)
        if match is None:
            raise UnreadableError(f"the character {text[position]!r}")
        kind, found, position = match.lastgroup, match[0], match.end()
        if kind == "space" or found in SPACES or found in IGNORED:
            spaced = spaced or found not in IGNORED
            if found in (r"\quad", r"\qquad"):  # these set apart where thin spaces do not
                tokens.append(Token("word", "quad", True))
            continue
        if found in (r"\color", r"\textcolor", r"\phantom", r"\hspace", r"\vspace"):
            colour = _COLOR.match(text, position)
            position = colour.end() if colour else position
            continue
        if found in (r"\left", r"\right"):  # an empty bracket is written as a dot
            position += text.startswith(".", position)
            continue
        brackets += (found in _OPENING) - (found in _CLOSING)
        is_text = kind == "command" and found[1:].rstrip("*") in TEXT_FONTS
        argument = _TEXT_ARGUMENT.match(text, position) if is_text else None
        if argument is not None:
            position = argument.end()
            _add_text((argument[1] or argument[2] or "").strip(" ~"), found, comma, tokens)
        else:
            tokens.append(Token(kind, found, spaced))  # type: ignore[arg-type]
        spaced = False
        if len(tokens) > MAX_TOKENS:
            raise LimitError(f"an answer of more than {MAX_TOKENS} tokens")


def _add_text(content: str, command: str, comma: Comma, tokens: list[Token]) -> None:
    """Words in mathematics: numbers and signs among them are mathematics again."""
    if content.lower() in ("or", "and"):
        tokens.append(Token("word", content.lower(), True))
    elif _NO_LETTERS.fullmatch(content) or content[:1].isdigit():
        _scan(content, comma, tokens)
    elif (
        command.startswith(r"\operatorname")
        or content in FUNCTIONS
        or (len(content) == 1 and content not in UNITS)
    ):
        tokens.append(Token("word", content, True))
    else:
        tokens.extend(Token("text", word, True) for word in content.split())


def read_number(text: str, comma: Comma) -> tuple[int | Fraction, int | None, int]:
    r"""Value without its power of ten, decimal places (None if whole), and that power.

    >>> read_number("1,234.50", "thousands"), read_number("6.02e23", "thousands")
    ((Fraction(2469, 2), 2, 0), (Fraction(301, 50), 2, 23))
    >>> read_number("1.234,5", "decimal"), read_number(r"0.1\overline{6}", "list")[0]
    ((Fraction(2469, 2), 1, 0), Fraction(1, 6))
    """
    if len(text) > MAX_DIGITS:
        raise LimitError(f"a number of {len(text)} characters")
    if text.isdigit():
        return int(text), None, 0
    if "\\" in text and "." in text and "{" in text and text.endswith("}"):
        head, _, tail = text.partition("\\")
        cycle = "".join(filter(str.isdigit, tail))
        whole, _, places = head.partition(".")
        start = Fraction(int(whole + places or "0"), 10 ** len(places))
        return start + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(places)), None, 0
    if text.endswith(("...", "dots")):
        digits = text.rstrip("\\ldots.")
        cycle = digits[-1]
        return read_number(digits.rstrip(cycle) + rf"\overline{{{cycle}}}", comma)
    if comma == "decimal" and "," in text:
        text = text.replace(".", "").replace("{,}", ".").replace(",", ".")
    text = "".join(char for char in text if char in "0123456789.eE+-")
    mantissa, _, exponent = text.lower().partition("e")
    whole, point, places = mantissa.partition(".")
    value: int | Fraction = int(whole or "0")
    if places:
        value = Fraction(int(whole + places), 10 ** len(places))
    if len(exponent) > 30:
        raise LimitError("an exponent of more than 30 digits")
    return value, len(places) if point and places else None, int(exponent or "0")
