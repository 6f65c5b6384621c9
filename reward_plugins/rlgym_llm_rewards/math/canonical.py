"""Turns a tree into its exact form: arithmetic, roots, logarithms, trigonometry by rewriting."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from rlgym_llm_rewards.math.form import (
    ONE,
    Form,
    Terms,
    atom,
    constant,
    rational,
    total,
)
from rlgym_llm_rewards.math.functions import apply, exponential
from rlgym_llm_rewards.math.nodes import Node
from rlgym_llm_rewards.math.powers import power
from rlgym_llm_rewards.math.tokens import UnreadableError

__all__ = ["canonical", "is_exact"]


def canonical(node: Node) -> Form:
    r"""The form of a value; raises UndefinedError, TooLargeError, or UnreadableError for no value.

    >>> from rlgym_llm_rewards.math.parse import parse
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
    result = ONE
    for arg in args:
        result = result * canonical(arg)
    return result


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
    if name in _STRUCTURAL:
        return atom(("call", name, tuple(nodes)))
    values = [canonical(arg) for arg in nodes]
    return apply(name, values)


_STRUCTURAL = frozenset("sum prod int lim iint oint bigcup bigcap".split())

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
    "call": _call,
}
