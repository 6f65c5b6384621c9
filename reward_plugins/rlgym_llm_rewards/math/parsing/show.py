"""Writes a tree in plain mathematics, so that a verdict can be understood."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rlgym_llm_rewards.math.parsing.nodes import Node

__all__ = ["show"]

_LOOSE = frozenset(["add", "neg", "pm", "mp", "rel", "ratio", "setop"])


def show(node: Node) -> str:
    r"""The tree as one line.

    >>> from rlgym_llm_rewards.math.parsing.parse import parse
    >>> show(parse(r"x \le -\frac{\sqrt{2}}{3} + y^{10}")), show(parse("[0, 3 1/4)"))
    ('x <= -sqrt(2)/3 + y^10', '[0, 13/4)')
    """
    head, args = node
    writer = _WRITERS.get(head)
    if writer is not None:
        return writer(args)
    parts = [_tight(arg) for arg in args if isinstance(arg, Node)]
    return f"{head}({', '.join(parts)})"


def _tight(node: Node) -> str:
    return f"({show(node)})" if node.head in _LOOSE else show(node)


def _number(args: tuple[Any, ...]) -> str:
    value, places = args
    if places is None:
        return str(value)
    digits = f"{abs(int(value * 10**places)):0{places + 1}d}"
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def _sum(args: tuple[Node, ...]) -> str:
    text = show(args[0])
    for term in args[1:]:
        if term.head == "neg":
            text += f" - {_tight(term.args[0])}"
        elif term.head in ("pm", "mp"):
            text += f" {'±' if term.head == 'pm' else '∓'} {_tight(term.args[0])}"
        else:
            text += f" + {show(term)}"
    return text


def _relation(args: tuple[Any, ...]) -> str:
    ops, first, *rest = args
    text = "" if first == Node("const", ("nothing",)) else show(first)
    return (text + "".join(f" {op} {show(x)}" for op, x in zip(ops, rest, strict=True))).strip()


def _sequence(args: tuple[Any, ...]) -> str:
    kind, *items = args
    text = (" or " if kind == "or" else ", ").join(map(show, items))
    brackets = {"set": "{}", "tuple": "()", "array": "[]"}.get(kind, "")
    return brackets[:1] + text + brackets[1:]


def _root(args: tuple[Node, Node]) -> str:
    index = show(args[1])
    return f"sqrt({show(args[0])})" if index == "2" else f"root({show(args[0])}, {index})"


def _factor(node: Node) -> str:
    return f"({show(node)})" if node.head in (*_LOOSE, "div") else show(node)


def _base(node: Node) -> str:
    loose = node.head in (*_LOOSE, "mul", "div", "pow") or isinstance(node.args[0], Fraction)
    return f"({show(node)})" if loose else show(node)


_WRITERS = {
    "num": _number,
    "sym": lambda args: str(args[0]),
    "const": lambda args: str(args[0]),
    "add": _sum,
    "mul": lambda args: "*".join(map(_factor, args)),
    "neg": lambda args: f"-{_tight(args[0])}",
    "pm": lambda args: f"±{_tight(args[0])}",
    "mp": lambda args: f"∓{_tight(args[0])}",
    "div": lambda args: f"{_tight(args[0])}/{_base(args[1])}",
    "pow": lambda args: f"{_base(args[0])}^{_base(args[1])}",
    "root": _root,
    "call": lambda args: (
        f"{args[0]}({', '.join(show(a) for a in args[1:] if isinstance(a, Node))})"
    ),
    "percent": lambda args: f"{_tight(args[0])}%",
    "unit": lambda args: f"{_tight(args[0])} {args[1]}",
    "based": lambda args: f"{args[0]}_{args[1]}",
    "ratio": lambda args: ":".join(map(_tight, args)),
    "time": lambda args: f"{show(args[0])}:{show(args[1]):0>2}",
    "seq": _sequence,
    "interval": lambda args: f"{args[0][0]}{show(args[1])}, {show(args[2])}{args[0][1]}",
    "setop": lambda args: f"{show(args[1])} {args[0]} {show(args[2])}",
    "matrix": lambda rows: "[" + "; ".join(", ".join(map(show, row)) for row in rows) + "]",
    "rel": _relation,
}
