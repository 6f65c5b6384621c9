"""What a tree is: its elements where it is a list, its value where it is an assignment."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from rlgym_llm_rewards.math.parsing.nodes import Node, mapped, sequence, symbols, walk
from rlgym_llm_rewards.math.parsing.vocabulary import CALLABLE_LETTERS

__all__ = ["as_matrix", "elements", "expand", "is_listed", "is_name", "resolve", "spread", "unwrap"]

_MAX_SIGNS = 4
_FUNCTION_LETTERS = frozenset("ABCDEFGHKLMNPQRSTUVWXYZfghpqrsuvwy")


def expand(node: Node) -> Node:
    r"""The tree with plus-minus signs as lists of values, and nested lists as one.

    >>> from rlgym_llm_rewards.math.parsing.parse import parse
    >>> len(elements(expand(parse(r"1, 2 \pm 3"))))
    3
    """
    if node.head == "seq" and node.args[0] in ("list", "or", "set"):
        items: list[Node] = []
        for arg in map(expand, node.args[1:]):
            nested = arg.head == "seq" and arg.args[0] in ("list", "or")
            items += arg.args[1:] if nested else [arg]
        return sequence(node.args[0], items)
    if node.head == "mul" and len(node.args) == 2 and _is_point(*node.args):
        point: Node = node.args[1]
        return point
    vector = _distributed(node)
    if vector is not None:
        return vector
    num_signs = sum(n.head in ("pm", "mp") for n in walk(node))
    if not num_signs or num_signs > _MAX_SIGNS:
        return node
    # All signs of one expression turn together, as in a pair of formulas.
    return sequence("list", [_signed(node, plus) for plus in (True, False)])


def _is_point(name: Node, place: Node) -> bool:
    """Whether it is a point with its name, as in A(1,2)."""
    is_place = place.head == "seq" and place.args[0] == "tuple"
    return is_place and name.head == "sym" and name.args[0][:1].isupper()


def _distributed(node: Node) -> Node | None:
    """The tuple that a number times a tuple is."""
    if node.head == "neg" and (inner := _as_tuple(node.args[0])) is not None:
        return sequence("tuple", [Node("neg", (item,)) for item in inner])
    if node.head == "div" and (inner := _as_tuple(node.args[0])) is not None:
        return sequence("tuple", [Node("div", (item, node.args[1])) for item in inner])
    if node.head == "add":
        terms = [_as_tuple(arg) for arg in node.args]
        known = [term for term in terms if term]
        if len(known) == len(terms) and len({len(term) for term in known}) == 1:
            sums = [Node("add", items) for items in zip(*known, strict=True)]
            return sequence("tuple", sums)
    if node.head == "mul":
        *factors, last = node.args
        inner = _as_tuple(last)
        if inner is not None and all(factor.head not in ("seq", "matrix") for factor in factors):
            return sequence("tuple", [Node("mul", (*factors, item)) for item in inner])
    return None


def _as_tuple(node: Node) -> tuple[Any, ...] | None:
    return node.args[1:] if node.head == "seq" and node.args[0] == "tuple" else None


def spread(node: Node) -> Node:
    r"""The equation of two tuples as the equations of their members: (x,y) = (1,2)."""
    if node.head != "rel" or node.args[0] != ("=",):
        return node
    left, right = node.args[1:]
    if not all(side.head == "seq" and side.args[0] == "tuple" for side in (left, right)):
        return node
    pairs = list(zip(left.args[1:], right.args[1:], strict=False))
    if len(left.args) != len(right.args) or not all(name.head == "sym" for name, _ in pairs):
        return node
    return sequence("list", [Node("rel", (("=",), *pair)) for pair in pairs])


def _signed(node: Node, plus: bool) -> Node:
    if node.head in ("pm", "mp"):
        inner = _signed(node.args[0], plus)
        return inner if plus == (node.head == "pm") else Node("neg", (inner,))
    return mapped(node, lambda arg: _signed(arg, plus))


def is_listed(node: Node) -> bool:
    """Whether it is a list, a set, or alternatives."""
    return (node.head == "seq" and node.args[0] in ("list", "or", "set")) or node == Node(
        "const", ("empty",)
    )


def elements(node: Node) -> list[Node]:
    """The elements of a list or set; a single value is its own only element."""
    if node == Node("const", ("empty",)):
        return []
    return list(node.args[1:]) if is_listed(node) else [node]


def resolve(node: Node) -> list[Node]:
    """The members of an equation chain, without the approximations that follow an exact value."""
    if node.head != "rel" or any(op not in ("=", "~", "equiv") for op in node.args[0]):
        return [node]
    ops, *members = node.args
    kept = [members[0]]
    for op, member in zip(ops, members[1:], strict=True):
        if op == "~" and not (len(kept) == 1 and is_name(kept[0])):
            break
        kept.append(member)
    return kept


def unwrap(node: Node) -> tuple[Node | None, Node]:
    r"""The name and the value of an assignment such as ``x = 2 + 3 = 5``; else None and the node.

    >>> from rlgym_llm_rewards.math.parsing.parse import parse
    >>> unwrap(parse("x = 2 + 3 = 5"))
    (Node(head='sym', args=('x',)), Node(head='num', args=(5, None)))
    """
    if node.head == "rel" and node.args[0] == ("in",):
        return node.args[1], node.args[2]
    members = resolve(node)
    if len(members) == 1:
        return None, members[0]
    first, last = members[0], members[-1]
    if _is_definition(first, last):
        return first, last
    if is_name(first) and not symbols(first) & symbols(last):
        return first, last
    if is_name(last) and not is_name(first) and not symbols(first) & symbols(last):
        return last, first
    if is_name(first) and is_name(last):  # f(y) = y names a value by a variable
        return first, last
    if not any(map(symbols, members[1:])) and (len(members) > 2 or not symbols(first)):
        return None, last
    return None, node


def _is_definition(left: Node, right: Node) -> bool:
    """Whether it defines a function, as f(x) = x^2 does: the value may hold its variables."""
    if left.head == "call" and all(arg.head == "sym" for arg in left.args[1:]):
        function = left.args[0]
        return function[:1] in CALLABLE_LETTERS and all(
            n.head != "call" or n.args[0] != function for n in walk(right)
        )
    # P(x), y(t) and f^{-1}(x) read as products; the value holds the variable, not the name.
    if left.head != "mul" or len(left.args) != 2 or left.args[1].head != "sym":
        return False
    function = left.args[0].args[0] if left.args[0].head == "pow" else left.args[0]
    names = symbols(right)
    return bool(
        function.head == "sym"
        and function.args[0][:1] in _FUNCTION_LETTERS
        and function.args[0] not in names
        and left.args[1].args[0] in names
    )


def is_name(node: Node) -> bool:
    """Whether it names something rather than works something out: x, f(x), AB, S:T, NO/BO."""
    head, args = node
    if head in ("sym", "based"):
        return True
    if head == "call":
        return bool(symbols(node)) or args[0][:1] in CALLABLE_LETTERS
    if head == "mul":
        return (
            args[0].head == "sym" and args[0].args[0][:1].isupper() and all(map(is_name, args[1:]))
        )
    if head in ("ratio", "div") or (head == "seq" and args[0] == "tuple"):
        parts = args[1:] if head == "seq" else args
        return all(is_name(part) and (head == "seq" or _is_upper(part)) for part in parts)
    if head == "seq" and args[0] == "array":  # [ABC], an area
        return len(args) == 2 and is_name(args[1]) and _is_upper(args[1])
    return head == "rel" and is_name(args[1])  # P(X = 3)


def _is_upper(node: Node) -> bool:
    return all(name[:1].isupper() for name in symbols(node))


def as_matrix(node: Node) -> tuple[tuple[Any, ...], ...] | None:
    """The rows of a matrix, of a nested array, or of a number times a matrix."""
    head, args = node
    if head == "matrix":
        return args
    if head == "seq" and args[0] == "array" and len(args) > 1:
        nested = [
            arg.args[1:] if arg.head == "seq" and arg.args[0] == "array" else () for arg in args[1:]
        ]
        if len(args) == 2 and args[1].head == "matrix":  # brackets drawn around a bare matrix
            return as_matrix(args[1])
        if all(nested) and all(len(a) == len(b) for a, b in pairwise(nested)):
            return tuple(nested)
    if head == "neg" and (inner := as_matrix(args[0])) is not None:
        return tuple(tuple(Node("neg", (cell,)) for cell in row) for row in inner)
    if head == "pow" and args[1] in (Node("sym", ("T",)), Node("sym", ("top",))):
        row = _as_tuple(args[0])
        rows = as_matrix(args[0]) if row is None else (row,)
        return None if rows is None else tuple(zip(*rows, strict=True))
    if head == "mul" and len(args) == 2 and all(map(as_matrix, args)):
        return _product(*map(as_matrix, args))
    if head == "mul":
        found = [(index, rows) for index, arg in enumerate(args) if (rows := as_matrix(arg))]
        if len(found) == 1:
            index, inner = found[0]
            others = (*args[:index], *args[index + 1 :])
            return tuple(tuple(Node("mul", (*others, cell)) for cell in row) for row in inner)
    if head == "add":
        terms = [as_matrix(arg) for arg in args]
        first = terms[0]
        if first is not None and all(t and [*map(len, t)] == [*map(len, first)] for t in terms):
            return tuple(
                tuple(Node("add", cells) for cells in zip(*rows, strict=True))
                for rows in zip(*(t for t in terms if t), strict=True)
            )
    if head == "div" and (inner := as_matrix(args[0])) is not None:
        return tuple(tuple(Node("div", (cell, args[1])) for cell in row) for row in inner)
    return None


def _product(left: Any, right: Any) -> tuple[tuple[Any, ...], ...] | None:
    """The product of two matrices, None where their sizes do not fit."""
    if len(left[0]) != len(right):
        return None
    columns = tuple(zip(*right, strict=True))
    return tuple(
        tuple(
            Node("add", tuple(Node("mul", pair) for pair in zip(row, column, strict=True)))
            for column in columns
        )
        for row in left
    )
