"""Equations up to a factor, inequalities up to a positive one, chains member by member."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from rlgym_llm_rewards.math.parsing.nodes import Node, symbols, walk
from rlgym_llm_rewards.math.parsing.tokens import UnreadableError
from rlgym_llm_rewards.math.shape import is_name, resolve
from rlgym_llm_rewards.math.values import Comparison, Decision, form_of, same_value

__all__ = ["FLIPPED", "is_consistent", "same_relation"]

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Orderings by what they are from the other side."""


def is_consistent(node: Node, by: Comparison) -> bool:
    """Whether the numbers that an equation chain sets equal are equal: 5 = 6 are not."""
    if node.head != "rel":
        return True
    constants = [member for member in resolve(node) if _is_constant(member)]
    return all(same_value(one, other, by).is_same for one, other in pairwise(constants))


def same_relation(gold: Node, answer: Node, by: Comparison) -> Decision:
    r"""Whether two relations say the same.

    Equations may differ by a constant factor (2x + 4y = 3 is y = -x/2 + 3/4), inequalities by a
    positive one, and both by their direction.
    """
    gold_ops, *gold_members = gold.args
    ops, *members = answer.args
    if len(gold_ops) == len(ops) == 1 and gold_ops[0] in ("=", "!=", *FLIPPED):
        factor = _factor(gold_members, members)
        if factor is not None:
            flips = factor < 0 and gold_ops[0] in FLIPPED
            return Decision(ops[0] == (FLIPPED[gold_ops[0]] if flips else gold_ops[0]), "factor")
    if len(ops) > 1 and all(op in FLIPPED for op in ops) and ops[0] != gold_ops[0]:
        ops, members = tuple(FLIPPED[op] for op in reversed(ops)), members[::-1]
    if gold_ops != ops:
        return Decision(False, "relation")
    pairs = zip(gold_members, members, strict=True)
    return Decision(all(_same(one, other, by) for one, other in pairs), "members")


def _same(one: Node, other: Node, by: Comparison) -> bool:
    return one == other or same_value(one, other, by).is_same


def _is_constant(node: Node) -> bool:
    values = ("num", "add", "mul", "neg", "div", "pow", "root", "percent", "unit", "call")
    return node.head in values and not symbols(node) and not any(map(is_name, walk(node)))


def _factor(gold: list[Node], answer: list[Node]) -> int | Fraction | None:
    """The constant c with gold left - right = c (answer left - right), if there is one."""
    one, other = _difference(gold), _difference(answer)
    if not one or not other or one.keys() != other.keys():
        return None
    ratios = {Fraction(value) / other[monomial] for monomial, value in one.items()}
    return ratios.pop() if len(ratios) == 1 else None


def _difference(sides: list[Node]) -> Mapping[Any, int | Fraction]:
    """The numerator's terms of left - right."""
    try:
        form = form_of(Node("add", (sides[0], Node("neg", (sides[1],)))))
    except UnreadableError:
        return {}
    return {} if form is None else form.top
