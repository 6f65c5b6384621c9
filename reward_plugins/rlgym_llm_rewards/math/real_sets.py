r"""Sets of real numbers: intervals, unions and inequalities in one variable are one thing.

``1 < x \le 2``, ``x \in (1, 2]`` and ``(1,2]`` are the same set; so are ``x \ne 2`` and
``(-\infty,2)\cup(2,\infty)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from rlgym_llm_rewards.math.algebra.form import ONE, Form, UndefinedError, rational
from rlgym_llm_rewards.math.algebra.probe import real_value
from rlgym_llm_rewards.math.parsing.nodes import INFINITY, MINUS_INFINITY, Node, number, symbols
from rlgym_llm_rewards.math.parsing.show import show
from rlgym_llm_rewards.math.relations import FLIPPED
from rlgym_llm_rewards.math.shape import elements, is_listed, is_name, unwrap
from rlgym_llm_rewards.math.values import Comparison, form_of, same_value

__all__ = ["RealSet", "is_set", "real_set", "same_set"]

_MAX_PIECES = 50


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a piece."""

    value: Node
    is_closed: bool
    position: Any
    """Its place on the line: an mpmath number, or an infinity as float."""


Piece = tuple[Bound, Bound]


@dataclass(frozen=True, slots=True)
class RealSet:
    """Disjoint pieces in order."""

    pieces: tuple[Piece, ...]
    variable: str | None = None
    """The variable of the inequality that it was."""


class _NoSetError(Exception):
    """The tree is no set of real numbers that can be ordered."""


def is_set(node: Node) -> bool:
    """Whether it can be nothing but a set: an interval with mixed ends, a union, an inequality."""
    name, value = unwrap(node)
    if name is not None and node.head == "rel" and node.args[0] == ("in",):
        return True
    if value.head == "rel":
        return all(op in _ORDERINGS or op == "!=" for op in value.args[0])
    if is_listed(value):
        return bool(elements(value)) and all(map(is_set, elements(value)))
    reals = Node("const", ("reals",))
    return value.head in ("interval", "setop") or value == reals or reals in value.args


def real_set(node: Node) -> RealSet | None:
    """The set that a tree stands for, None where it stands for none."""
    try:
        variable, pieces = _pieces(node)
        return RealSet(_joined(pieces), variable)
    except (_NoSetError, UndefinedError):
        return None


def same_set(gold: RealSet, answer: RealSet, by: Comparison) -> bool:
    """Whether two sets have the same pieces, ends and all."""
    names = {gold.variable, answer.variable} - {None}
    if len(names) > 1 and by.policy.strict_variables:
        return False
    return len(gold.pieces) == len(answer.pieces) and all(
        one.is_closed == other.is_closed and same_value(one.value, other.value, by).is_same
        for mine, theirs in zip(gold.pieces, answer.pieces, strict=True)
        for one, other in zip(mine, theirs, strict=True)
    )


def _bound(value: Node, is_closed: bool) -> Bound:
    if value == INFINITY:
        return Bound(value, False, float("inf"))
    if value == MINUS_INFINITY:
        return Bound(value, False, float("-inf"))
    position = None if symbols(value) else real_value(value)
    if position is None:
        raise _NoSetError
    return Bound(value, is_closed, position)


def _piece(low: Node, high: Node, brackets: str) -> list[Piece]:
    piece = _bound(low, brackets[0] == "["), _bound(high, brackets[1] == "]")
    return [piece] if piece[0].position <= piece[1].position else []


def _pieces(node: Node) -> tuple[str | None, list[Piece]]:
    head, args = node
    if head == "interval":
        return None, _piece(args[1], args[2], args[0])
    if head == "seq" and args[0] in ("tuple", "array") and len(args) == 3:
        return None, _piece(args[1], args[2], "()" if args[0] == "tuple" else "[]")
    if head == "seq" and args[0] == "set":
        return None, [piece for arg in args[1:] for piece in _piece(arg, arg, "[]")]
    if node == Node("const", ("empty",)):
        return None, []
    if node == Node("const", ("reals",)):
        return None, _piece(MINUS_INFINITY, INFINITY, "()")
    if head == "setop":
        left, right = (_pieces(arg)[1] for arg in args[1:])
        if args[0] == "union":
            return None, left + right
        if args[0] == "minus":
            right = _complement(_joined(right))
        return None, _common(left, right)
    if head == "add" and len(args) == 2 and args[1].head == "neg":
        return _pieces(Node("setop", ("minus", args[0], args[1].args[0])))
    if head == "rel":
        return _inequality(node)
    if is_listed(node):
        return _combined(node)
    raise _NoSetError


def _combined(node: Node) -> tuple[str | None, list[Piece]]:
    """Inequalities side by side: with "or" they unite; else all must hold, if they can."""
    parts = [_pieces(item) for item in elements(node)]
    variables = {variable for variable, _ in parts}
    if len(variables) != 1 or not all(item.head == "rel" for item in elements(node)):
        raise _NoSetError
    common = parts[0][1]
    for _, pieces in parts[1:]:
        common = _common(common, pieces)
    if node.args[0] == "or" or not common:
        return variables.pop(), [piece for _, pieces in parts for piece in pieces]
    return variables.pop(), common


_ORDERINGS = {"<": "()", "<=": "[]", ">": "()", ">=": "[]"}


def _inequality(node: Node) -> tuple[str | None, list[Piece]]:
    ops, *members = node.args
    if ops == ("in",):
        if members[0].head != "sym":
            raise _NoSetError
        return members[0].args[0], _pieces(members[1])[1]
    members = [_as_variable(member) for member in members]
    names = frozenset[str]().union(*map(symbols, members))
    if len(names) != 1 or any(op not in (*FLIPPED, "!=") for op in ops):
        raise _NoSetError
    (name,) = names
    pieces = _piece(MINUS_INFINITY, INFINITY, "()")
    for op, (left, right) in zip(ops, pairwise(members), strict=True):
        pieces = _common(pieces, _solved(op, left, right, name))
    return name, pieces


def _as_variable(member: Node) -> Node:
    """A member such as f(x), which an inequality bounds as it would a variable."""
    is_function = member.head == "call" and is_name(member) and member.args[0] != "abs"
    return Node("sym", (show(member),)) if is_function else member


def _solved(op: str, left: Node, right: Node, name: str) -> list[Piece]:
    """The solution of one inequality that is linear in its variable."""
    if left.head == "call" and left.args[0] == "abs" and name not in symbols(right):
        return _within(op, left.args[1], right, name)
    if right.head == "call" and right.args[0] == "abs" and name not in symbols(left):
        return _within(FLIPPED.get(op, op), right.args[1], left, name)
    if left == Node("sym", (name,)) and name not in symbols(right):
        return _half_line(op, right)
    if right == Node("sym", (name,)) and name not in symbols(left):
        return _half_line(FLIPPED.get(op, op), left)
    if any(node in (INFINITY, MINUS_INFINITY) for node in (left, right)):
        raise _NoSetError
    try:
        difference = form_of(Node("add", (left, Node("neg", (right,)))))
    except ValueError:
        raise _NoSetError from None
    slope, rest = _linear(difference, name)
    value = -Fraction(rest) / Fraction(slope)
    return _half_line(op if slope > 0 else FLIPPED.get(op, op), _number_node(value))


def _within(op: str, inside: Node, limit: Node, name: str) -> list[Piece]:
    """The solution of |inside| op limit."""
    above = _solved(op, inside, limit, name)
    below = _solved(FLIPPED.get(op, op), inside, Node("neg", (limit,)), name)
    return above + below if op in (">", ">=") else _common(above, below)


def _linear(form: Form | None, name: str) -> tuple[int | Fraction, int | Fraction]:
    """The rational coefficients of slope * x + rest."""
    monomial = frozenset([(("sym", name), 1)])
    if form is None or form.bottom != ONE.top or not form.top.keys() <= {monomial, frozenset()}:
        raise _NoSetError
    slope = form.top.get(monomial, 0)
    if not slope:
        raise _NoSetError
    rest = rational(Form({m: v for m, v in form.top.items() if m != monomial}, ONE.top))
    return slope, rest or 0


def _number_node(value: Fraction) -> Node:
    return number(value) if value >= 0 else Node("neg", (number(-value),))


def _half_line(op: str, value: Node) -> list[Piece]:
    if op == "!=":
        return [*_half_line("<", value), *_half_line(">", value)]
    ends = _ORDERINGS[op]
    if op in ("<", "<="):
        return _piece(MINUS_INFINITY, value, "(" + ends[1])
    return _piece(value, INFINITY, ends[0] + ")")


# -- the algebra of pieces -----------------------------------------------------------------------


def _equal(one: Bound, other: Bound) -> bool:
    if one.value == other.value:
        return True
    if isinstance(one.position, float) or isinstance(other.position, float):
        return bool(one.position == other.position)
    # Both are known to fifty digits.
    return bool(abs(one.position - other.position) <= 10**-40 * (1 + abs(one.position)))


def _low_order(one: Piece, other: Piece) -> int:
    if _equal(one[0], other[0]):
        return other[0].is_closed - one[0].is_closed
    return -1 if one[0].position < other[0].position else 1


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Pieces in order, those that touch made one."""
    if len(pieces) > _MAX_PIECES:
        raise _NoSetError
    joined: list[Piece] = []
    for piece in sorted(pieces, key=cmp_to_key(_low_order)):
        low, high = piece
        if _equal(low, high) and not (low.is_closed and high.is_closed):
            continue
        if joined:
            last = joined[-1][1]
            touches = _equal(last, low) and (last.is_closed or low.is_closed)
            if touches or (last.position > low.position and not _equal(last, low)):
                if _equal(last, high):
                    closed = high if high.is_closed else last
                    joined[-1] = joined[-1][0], closed
                elif high.position > last.position:
                    joined[-1] = joined[-1][0], high
                continue
        joined.append(piece)
    return tuple(joined)


def _common(left: list[Piece], right: list[Piece]) -> list[Piece]:
    """The intersection, piece by piece."""
    if len(left) * len(right) > _MAX_PIECES**2:
        raise _NoSetError
    common = []
    for one in left:
        for other in right:
            low = _tighter(one[0], other[0], keep_larger=True)
            high = _tighter(one[1], other[1], keep_larger=False)
            if _equal(low, high):
                if low.is_closed and high.is_closed:
                    common.append((low, high))
            elif low.position < high.position:
                common.append((low, high))
    return common


def _tighter(one: Bound, other: Bound, *, keep_larger: bool) -> Bound:
    if _equal(one, other):
        return other if one.is_closed else one
    return one if (one.position > other.position) == keep_larger else other


def _complement(pieces: tuple[Piece, ...]) -> list[Piece]:
    """What the real line holds beside the pieces."""
    rest = []
    low = _bound(MINUS_INFINITY, False)
    for start, end in pieces:
        if not _equal(low, start):
            rest.append((low, Bound(start.value, not start.is_closed, start.position)))
        low = Bound(end.value, not end.is_closed, end.position)
    if low.position != float("inf"):
        rest.append((low, _bound(INFINITY, False)))
    return rest
