"""Reads an expression of whole numbers and works it out exactly; nothing of it is ever executed.

A solution of countdown is held to four operations and the numbers given, and these are told; the
`calculator` forgives far more (signs, powers, percent, thousands), so it is another reader.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

__all__ = ["MAX_CHARS", "ExactExpression", "is_solution", "read_expression"]

MAX_CHARS: Final = 200
"""A longer expression is refused, so that time and the size of the numbers are bounded."""

_TOKEN: Final = re.compile(r"[ \t\n]*(?:([0-9]+)|([-+*/()])|(\S))")
_SPELLINGS: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
_OPERATIONS: Final[Mapping[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_STRENGTHS: Final[Mapping[str, int]] = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2}


class ExactExpression(NamedTuple):
    """What an expression is worth, and the numbers it is made of, in their order."""

    value: Fraction
    numbers: tuple[int, ...]


def read_expression(text: str) -> ExactExpression:
    """The value and the numbers of ``+ - * /`` and brackets over whole numbers.

    ``×``, ``·``, ``÷`` and ``−`` are read as their ASCII signs. There is no sign before a number,
    no juxtaposition and no equation. Raises ValueError, in words, for whatever is no expression, is
    over 200 characters long, or divides by zero.

    >>> read_expression("(1 + 2) / 4")
    ExactExpression(value=Fraction(3, 4), numbers=(1, 2, 4))
    >>> read_expression("2 ** 3")
    Traceback (most recent call last):
        ...
    ValueError: a number or a bracket is expected before '*'
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"the expression has {len(text)} characters, over {MAX_CHARS}")
    numbers: list[int] = []
    values: list[Fraction] = []
    signs: list[str] = []
    is_operand_next = True
    for token in _tokens(text.translate(_SPELLINGS)):
        is_operand = token == "(" or token.isdecimal()
        if is_operand and not is_operand_next:
            raise ValueError(f"an operator is expected before {token!r}")
        if not is_operand and is_operand_next:
            raise ValueError(f"a number or a bracket is expected before {token!r}")
        if token == "(":
            signs.append(token)
        elif is_operand:
            numbers.append(int(token))
            values.append(Fraction(numbers[-1]))
            is_operand_next = False
        elif token == ")":
            while signs and signs[-1] != "(":
                _apply(signs.pop(), values)
            if not signs:
                raise ValueError("a bracket is closed that was never opened")
            signs.pop()
        else:
            while signs and _STRENGTHS[signs[-1]] >= _STRENGTHS[token]:
                _apply(signs.pop(), values)
            signs.append(token)
            is_operand_next = True
    if is_operand_next:
        raise ValueError("the expression is empty or ends too early")
    while signs:
        if (sign := signs.pop()) == "(":
            raise ValueError("a bracket is not closed")
        _apply(sign, values)
    return ExactExpression(values[0], tuple(numbers))


def is_solution(
    expression: str, numbers: Sequence[int], target: int, *, use_all: bool = False
) -> bool:
    """Whether the expression is worth the target and uses each number at most once.

    >>> is_solution("(5 * 5 - 1)", [1, 5, 5], 24), is_solution("5 * 5 - 1", [1, 5, 7], 24)
    (True, False)
    """
    try:
        value, used = read_expression(expression)
    except ValueError:
        return False
    given = Counter(numbers)
    is_fair = Counter(used) == given if use_all else Counter(used) <= given
    return is_fair and value == target


def _tokens(text: str) -> Iterator[str]:
    for number, sign, other in _TOKEN.findall(text.rstrip()):
        if other:
            raise ValueError(f"{other!r} is none of digits, + - * / and brackets")
        yield number or sign


def _apply(sign: str, values: list[Fraction]) -> None:
    right, left = values.pop(), values.pop()
    if sign == "/" and not right:
        raise ValueError("a division by zero")
    values.append(_OPERATIONS[sign](left, right))
