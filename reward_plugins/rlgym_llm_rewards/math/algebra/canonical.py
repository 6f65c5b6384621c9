"""Turns a tree into its exact form: arithmetic, roots, logarithms, trigonometry by rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from rlgym_llm_rewards.math.algebra.form import (
    ONE,
    ZERO,
    Form,
    Terms,
    TooLargeError,
    atom,
    constant,
    rational,
    total,
)
from rlgym_llm_rewards.math.algebra.functions import apply, exponential
from rlgym_llm_rewards.math.algebra.powers import power
from rlgym_llm_rewards.math.parsing.nodes import Node, mapped, number
from rlgym_llm_rewards.math.parsing.tokens import UnreadableError
from rlgym_llm_rewards.math.parsing.vocabulary import BIG

__all__ = ["canonical", "is_exact"]


def canonical(node: Node) -> Form:
    r"""The form of a value; raises UndefinedError, TooLargeError, or UnreadableError for no value.

    >>> from rlgym_llm_rewards.math.parsing.parse import parse
    >>> canonical(parse(r"\sec^2 x")).equals(canonical(parse(r"\tan^2 x + 1")))
    True
    >>> canonical(parse("ln 8")).equals(canonical(parse("3 ln 2")))
    True
    """
    head, args = node
    if head == "num":
        return constant(args[0])
    if head == "sym":
        return atom(("sym", args[0]))
    handler = _HANDLERS.get(head)
    if handler is None:
        raise UnreadableError(f"a {head} is no number")
    return handler(args)


def is_exact(terms: Terms) -> bool:
    """Whether these terms are independent: then a sum of them that is not empty is not zero.

    Variables, roots of primes, pi, e and i are; functions, roots of sums and powers with variable
    exponents may hide an identity.
    """
    return all(
        base[0] != "sum" and base[0] != "call" and not isinstance(exponent, Form)
        for monomial in terms
        for base, exponent in monomial
    )


def _const(args: tuple[str, ...]) -> Form:
    name = args[0]
    if name in ("pi", "e", "i"):
        return atom(("const", name))
    raise UnreadableError(f"{name} is no number")


def _mul(args: tuple[Node, ...]) -> Form:
    return _product(map(canonical, args))


def _pow(args: tuple[Node, Node]) -> Form:
    base, exponent = canonical(args[0]), canonical(args[1])
    if args[0] == Node("const", ("e",)):
        return exponential(exponent)
    return power(base, exponent)


def _root(args: tuple[Node, Node]) -> Form:
    index = rational(canonical(args[1]))
    if index is None or index == 0:
        return power(canonical(args[0]), ONE / canonical(args[1]))
    return power(canonical(args[0]), Fraction(1) / index)


def _percent(args: tuple[Node]) -> Form:
    return canonical(args[0]) / constant(100)


def _based(args: tuple[str, str]) -> Form:
    try:
        return constant(int(args[0], int(args[1])))
    except ValueError:
        raise UnreadableError(f"{args[0]} in base {args[1]}") from None


def _ratio(args: tuple[Node, ...]) -> Form:
    if len(args) != 2:
        raise UnreadableError("a ratio of more than two parts is no number")
    return canonical(args[0]) / canonical(args[1])


def _call(args: tuple[object, ...]) -> Form:
    name = str(args[0])
    nodes = [arg for arg in args[1:] if isinstance(arg, Node)]
    if name in BIG_NAMES:
        return _big(name, nodes)
    if name == "det" and nodes and nodes[0].head == "matrix":
        return _determinant([[canonical(cell) for cell in row] for row in nodes[0].args])
    if name == "set":
        raise UnreadableError("a set is no number")
    values = [canonical(arg) for arg in nodes]
    return apply(name, values)


BIG_NAMES = frozenset(BIG.values())
_MAX_STEPS = 500


def _big(name: str, nodes: list[Node]) -> Form:
    """A finite sum or product of a few terms, worked out; everything else by its form."""
    bounds, body = nodes[:-1], nodes[-1]
    if name in ("sum", "prod") and [b.args[0] for b in bounds[::2]] == ["_", "^"]:
        lower, upper = bounds[1], rational(canonical(bounds[3]))
        if lower.head == "rel" and lower.args[0] == ("=",) and lower.args[1].head == "sym":
            index, first = lower.args[1], rational(canonical(lower.args[2]))
            if isinstance(first, int) and isinstance(upper, int) and upper - first < _MAX_STEPS:
                steps = range(first, upper + 1)
                terms = (canonical(_replaced(body, index, number(step))) for step in steps)
                return total(terms) if name == "sum" else _product(terms)
    return atom(("call", name, *map(_form_or_node, nodes)))


def _replaced(node: Node, old: Node, new: Node) -> Node:
    return new if node == old else mapped(node, lambda arg: _replaced(arg, old, new))


def _form_or_node(node: Node) -> Form | Node:
    try:
        return canonical(node)
    except UnreadableError:
        return node


def _product(forms: Iterable[Form]) -> Form:
    result = ONE
    for form in forms:
        result = result * form
    return result


def _determinant(rows: list[list[Form]]) -> Form:
    """By the first column; small ones only."""
    if len(rows) != len(rows[0]) or len(rows) > 5:
        raise TooLargeError("a determinant of that size")
    if len(rows) == 1:
        return rows[0][0]
    result = ZERO
    for index, row in enumerate(rows):
        minor = _determinant([other[1:] for other in rows[:index] + rows[index + 1 :]])
        result = result + (minor if index % 2 == 0 else -minor) * row[0]
    return result


_HANDLERS: dict[str, Callable[..., Form]] = {
    "const": _const,
    "add": lambda args: total(canonical(arg) for arg in args),
    "mul": _mul,
    "neg": lambda args: -canonical(args[0]),
    "div": lambda args: canonical(args[0]) / canonical(args[1]),
    "pow": _pow,
    "root": _root,
    "percent": _percent,
    "unit": lambda args: canonical(args[0]),
    "based": _based,
    "ratio": _ratio,
    "time": _ratio,
    "call": _call,
}
