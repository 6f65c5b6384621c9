"""A calculator that is exact: fractions within, and nothing of what it is given is executed.

It reads what people type (signs, powers, percent, thousands); a solution of countdown is held to
less, and to the numbers that stand in it, so `exact_expression` is another reader.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

__all__ = ["MAX_CHARS", "calculate", "calculator"]

MAX_CHARS: Final = 200
"""A longer expression is refused, so that time and the size of the numbers are bounded."""
_MAX_BITS: Final = 2048
_MAX_DEPTH: Final = 40
_MAX_PLACES: Final = 12
_ROUNDED_PLACES: Final = 6

_TOKEN: Final = re.compile(
    r"\s*(?:\$?(?P<number>[0-9]+(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"|(?P<sign>\*\*|//|[-+*/%^()])|(?P<other>\S))"
)
_SPELLINGS: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
_Operation = Callable[[Fraction, Fraction], Fraction]
_SUMS: Final[Mapping[str, _Operation]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final[Mapping[str, _Operation]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": lambda left, right: Fraction(left // right),
    "%": operator.mod,
}


def calculator(expression: str) -> str:
    """Works out an arithmetic expression exactly.

    Args:
        expression: Numbers with + - * / // % ** and brackets, such as (12 + 3.5) * 2.
    """
    value = calculate(expression)
    whole = value.denominator
    places = 0
    while 10**places % whole and places < _MAX_PLACES:
        places += 1
    if 10**places % whole:
        places = _ROUNDED_PLACES
    scaled = round(value * 10**places)
    digits = f"{abs(scaled):0{places + 1}d}"
    sign = "-" if scaled < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"


def calculate(text: str) -> Fraction:
    """The value of an expression.

    ``^`` is ``**``, ``%`` means percent unless a number or a bracket follows (then it is the
    remainder), ``$`` before a number and commas between thousands are passed over. Raises
    ValueError, in words for a model, for whatever is no expression, is too long or too large, or
    divides by zero.

    >>> calculate("(1 + 2) / 4"), calculate("20% * 50"), calculate("7 % 4"), calculate("-2 ** 2")
    (Fraction(3, 4), Fraction(10, 1), Fraction(3, 1), Fraction(-4, 1))
    >>> calculate("1 +")
    Traceback (most recent call last):
    ValueError: a number or a bracket is expected at the end
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"the expression has {len(text)} characters, over {MAX_CHARS}")
    reader = _Reader(text.translate(_SPELLINGS))
    value = reader.sum(0)
    if reader.token:
        raise ValueError(f"an operator is expected before {reader.token!r}")
    return value


class _Reader:
    """Works out an expression from left to right, one token ahead; "" is the end."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        for match in _TOKEN.finditer(text.rstrip()):
            if match["other"]:
                raise ValueError(
                    f"{match['other']!r} is none of digits, + - * / // % ** and brackets"
                )
            self._tokens.append((match["number"] or match["sign"]).replace(",", ""))
        self._tokens.append("")
        self._place = 0

    @property
    def token(self) -> str:
        """The token that comes next."""
        return self._tokens[self._place]

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while (sign := self.token) in _SUMS:
            self._place += 1
            value = _bounded(_SUMS[sign](value, self._product(depth)))
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._signed(depth)
        while (sign := self.token) in _PRODUCTS:
            self._place += 1
            if sign == "%" and not self._is_operand():
                value /= 100
                continue
            right = self._signed(depth)
            if sign != "*" and not right:
                raise ValueError("a division by zero")
            value = _bounded(_PRODUCTS[sign](value, right))
        return value

    def _signed(self, depth: int) -> Fraction:
        is_negative = False
        while self.token and self.token in "+-":
            is_negative ^= self.token == "-"
            self._place += 1
        value = self._power(depth)
        return -value if is_negative else value

    def _power(self, depth: int) -> Fraction:
        base = self._operand(depth)
        if self.token not in ("^", "**"):
            return base
        self._place += 1
        if depth >= _MAX_DEPTH:
            raise ValueError("the powers are too deep")
        exponent = self._signed(depth + 1)
        if exponent.denominator != 1:
            raise ValueError("an exponent is a whole number")
        if exponent < 0 and not base:
            raise ValueError("a division by zero")
        num_bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(base) != 1 and base and num_bits * abs(exponent) > _MAX_BITS:
            raise ValueError("the number is too large")
        return Fraction(base ** int(exponent % 2 if abs(base) == 1 else exponent))

    def _operand(self, depth: int) -> Fraction:
        token = self.token
        if not self._is_operand():
            where = f"before {token!r}" if token else "at the end"
            raise ValueError(f"a number or a bracket is expected {where}")
        self._place += 1
        if token != "(":
            return Fraction(token)
        if depth >= _MAX_DEPTH:
            raise ValueError("the brackets are too deep")
        value = self.sum(depth + 1)
        if self.token != ")":
            raise ValueError("a bracket is not closed")
        self._place += 1
        return value

    def _is_operand(self) -> bool:
        return self.token == "(" or self.token[:1] == "." or self.token[:1].isdecimal()


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise ValueError("the number is too large")
    return value
