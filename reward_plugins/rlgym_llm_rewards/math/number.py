"""Read one number, exactly: integers, decimals, fractions, with their separators and signs."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm.unchecked import unchecked_tuple
from rlgym_llm_rewards.math.parsing.tokens import MAX_CHARS, MAX_DIGITS

__all__ = ["Number", "is_finite_decimal", "parse_number"]


# Groups of three digits may be joined by a comma (LaTeX writes {,} or \,), or a space of any width.
_SEPARATOR = r"(?:\{,\}|,?\\[,;! ]|[, \u00a0\u2009\u202f])"
_DIGITS = rf"(?:[1-9]\d{{0,2}}(?:{_SEPARATOR}\d{{3}})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_BRACED = rf"\{{\s?[-+−]?{_DECIMAL}\s?\}}"
_CURRENCY = r"(?:\\?\$|[€£¥])"
_NUMBER = lazy_pattern(
    rf"""
    (?P<sign>[-+−]?)\s?(?P<currency>{_CURRENCY}?)\s?(?P<sign2>[-+−]?)
    (?: (?P<top>{_DECIMAL}) (?: \s?/\s? (?P<bottom>{_DECIMAL}) )?
      | \\[cdt]?frac \s? (?P<frac_top>\d|{_BRACED}) \s? (?P<frac_bottom>\d|{_BRACED})
    )
    (?P<percent>\s?\\?%)?
    """,
    re.VERBOSE | re.ASCII,
)

_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"))
_NO_SEPARATORS = str.maketrans("", "", "{}\\,;! \u00a0\u2009\u202f")


class Number(NamedTuple):
    """An exact value and the signs it was written with."""

    value: Fraction | int
    """As written: 25 for ``25%``."""
    is_percent: bool = False
    currency: str = ""

    @property
    def is_finite(self) -> bool:
        """Whether it has a finite decimal: one that no rounding can stand for."""
        return type(self.value) is int or is_finite_decimal(self.value)

    def same_as(self, other: Number, *, percent_bare: bool = True) -> bool:
        """Whether both mean the same: 25% is 0.25 and also a bare 25, but 0.25 is not 25.

        A currency on one side only is ignored; on both it must agree.
        """
        value, is_percent, currency = self
        if currency and other.currency and currency != other.currency:
            return False
        if (is_percent and other.currency) or (other.is_percent and currency):
            return False
        if is_percent == other.is_percent:
            return value == other.value
        if value == other.value and percent_bare:
            return True
        percent, bare = (self, other) if is_percent else (other, self)
        return Fraction(percent.value) / 100 == bare.value


_number = unchecked_tuple(Number)  # as most answers are


def parse_number(text: str) -> Number | None:
    r"""The number that ``text`` is, or None where it is anything else or more than one number.

    Takes a sign, a currency sign, thousands separators, a percent sign, a closing full stop, and
    math or bold delimiters around it. Linear in time; text over `MAX_CHARS` is no number.

    >>> parse_number("$1,234.50").value
    Fraction(2469, 2)
    >>> parse_number(r"\frac{3}{4}").value, parse_number("042.").value
    (Fraction(3, 4), 42)
    >>> parse_number("4 2") is None and parse_number("1/0") is None
    True
    """
    if len(text) > MAX_CHARS:
        return None
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        return _number((int(text), False, ""))
    text = text.strip()
    match = _NUMBER.fullmatch(text)
    if match is None:
        text = _unwrap(text)
        match = _NUMBER.fullmatch(text)
    if match is None or (match["sign"] and match["sign2"]):
        return None
    if len(text) > MAX_DIGITS and sum(map(_is_digit, text)) > MAX_DIGITS:
        return None
    if match["top"] is not None:
        top, bottom = match["top"], match["bottom"]
    else:
        top, bottom = match["frac_top"], match["frac_bottom"]
    value = _exact(top)
    if bottom is not None:
        divisor = _exact(bottom)
        if divisor == 0:
            return None
        value = Fraction(value) / divisor
    if (match["sign"] or match["sign2"]) in ("-", "−"):
        value = -value
    currency = (match["currency"] or "").removeprefix("\\")
    return Number(value, match["percent"] is not None, currency)


def _is_digit(char: str) -> bool:
    return "0" <= char <= "9"


def _unwrap(text: str) -> str:
    """Takes off one full stop and the delimiters around a number, each once."""
    if not text.endswith(".."):
        text = text.removesuffix(".").rstrip()
    for opening, closing in _WRAPPERS:
        inner = text[len(opening) : -len(closing)]
        if inner and text.startswith(opening) and text.endswith(closing):
            text = inner.strip().removesuffix(".").rstrip()
    return text


def _exact(decimal: str) -> Fraction | int:
    """The value of a matched decimal, separators and sign included."""
    if decimal.isdecimal():
        return int(decimal)
    decimal = decimal.translate(_NO_SEPARATORS).replace("−", "-")
    whole, _, places = decimal.partition(".")
    if not places:
        return int(whole)
    return Fraction(int(whole + places), 10 ** len(places))


def is_finite_decimal(value: Fraction | int) -> bool:
    """Whether a number has finitely many decimals: no prime but 2 and 5 divides it.

    >>> is_finite_decimal(Fraction(3, 8)), is_finite_decimal(Fraction(1, 3))
    (True, False)
    """
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
