r"""The tree that answers are read into: plain data, hashable, and safe to send as JSON.

========= ============================ =====================================================
head      args                         what it is
========= ============================ =====================================================
num       value, places                an exact int or Fraction; decimal places, None if whole
sym       name                         a variable: ``x``, ``x_1``, ``\alpha``, ``f'``
const     name                         ``pi``, ``e``, ``i``, ``oo``, ``reals``, ``empty`` ...
add, mul  operand, ...                 a sum, a product
neg       operand                      a minus sign
pm        operand                      a plus-minus sign; ``mp`` is its opposite
div       top, bottom                  a quotient
pow, root base, exponent or index      a power, a root
call      name, argument, ...          a function: ``sin``, ``log`` (base second), ``f``
percent   operand                      ``25\%``
unit      operand, name                a unit, or any noun behind a number
based     digits, base                 ``1011_2``
ratio     operand, ...                 ``3:4``
time      hours, minutes               ``12:30``, which may be a ratio as well
seq       kind, item, ...              ``list``, ``set``, ``tuple``, ``array``, ``or``
interval  brackets, low, high          brackets is one of ``()``, ``[)``, ``(]``, ``[]``
setop     name, operand, ...           ``union``, ``inter``, ``minus``
matrix    row, ...                     a row is a tuple of nodes
rel       ops, operand, ...            a chain of relations; one operand more than ops
========= ============================ =====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = [
    "INFINITY",
    "MINUS_INFINITY",
    "Node",
    "children",
    "from_json",
    "mapped",
    "number",
    "sequence",
    "symbols",
    "to_json",
    "walk",
]


class Node(NamedTuple):
    """One node; the module's table says what its head means."""

    head: str
    args: tuple[Any, ...]


def number(value: int | Fraction, places: int | None = None) -> Node:
    """An exact number, whole ones as int.

    >>> number(Fraction(6, 2))
    Node(head='num', args=(3, None))
    """
    if isinstance(value, Fraction) and value.denominator == 1:
        value = value.numerator
    return Node("num", (value, places))


def sequence(kind: str, items: list[Node]) -> Node:
    """A list, set, tuple, array, or alternatives."""
    return Node("seq", (kind, *items))


INFINITY = Node("const", ("oo",))
MINUS_INFINITY = Node("neg", (INFINITY,))


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with every node among its arguments changed."""
    return Node(node.head, tuple(change(a) if isinstance(a, Node) else a for a in node.args))


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below."""
    for arg in node.args:
        if isinstance(arg, Node):
            yield arg
        elif isinstance(arg, tuple):
            yield from (cell for cell in arg if isinstance(cell, Node))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def symbols(node: Node) -> frozenset[str]:
    """The names of the variables in it."""
    return frozenset(n.args[0] for n in walk(node) if n.head == "sym")


def to_json(node: Node) -> list[Any]:
    """The tree as JSON: a list of head and arguments, numbers as strings of their fraction."""
    if node.head == "num":
        return ["num", str(node.args[0])]
    return [node.head, *(to_json(arg) if isinstance(arg, Node) else arg for arg in node.args)]


def from_json(data: list[Any]) -> Node:
    """The tree that `to_json` wrote.

    >>> from_json(to_json(number(Fraction(1, 3)))) == number(Fraction(1, 3))
    True
    """
    head, *args = data
    if head == "num":
        return number(Fraction(args[0]))
    return Node(head, tuple(from_json(arg) if isinstance(arg, list) else arg for arg in args))
