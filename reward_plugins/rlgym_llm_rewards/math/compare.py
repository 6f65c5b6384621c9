"""Decides whether two answers are the same thing, by what they are: value, list, tuple, set, ..."""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm_rewards.math.parsing.nodes import Node, mapped, sequence, symbols, walk
from rlgym_llm_rewards.math.real_sets import is_set, real_set, same_set
from rlgym_llm_rewards.math.relations import is_consistent, same_relation
from rlgym_llm_rewards.math.shape import as_matrix, elements, expand, is_listed, spread, unwrap
from rlgym_llm_rewards.math.values import Comparison, Decision, UndecidedError, same_value
from rlgym_llm_rewards.math.verdict import VerdictStatus

__all__ = ["compare"]


def compare(gold: Node, answer: Node, by: Comparison) -> Decision:
    """Whether the answer is the gold one; raises UndecidedError, UndefinedError.

    The kinds are looked at from the most particular to the plain value; things of two kinds are
    the same only where one kind can be read as the other ("x = 5" as 5, "1 < x" as an interval).
    """
    if not by.policy.strict_variables:
        answer = _renamed(answer, gold)
    return _same(expand(spread(gold)), expand(spread(answer)), by)


def _same(gold: Node, answer: Node, by: Comparison) -> Decision:
    if not is_consistent(answer, by):
        return Decision(False, "contradiction")
    if gold == answer:
        return Decision(True, "identical")
    if is_set(gold) or is_set(answer):
        sets = real_set(gold), real_set(answer)
        if sets[0] is not None and sets[1] is not None:
            return Decision(same_set(sets[0], sets[1], by), "set")
    (gold_name, gold_value), (name, value) = unwrap(gold), unwrap(answer)
    if is_listed(gold_value) and is_listed(value) and None in (gold_name, name):
        gold, answer = expand(gold_value), expand(value)  # A = {1, 2}, x in {1, 2}
    if is_listed(gold) or is_listed(answer):
        return _same_list(gold, answer, by)
    if gold.head == "rel" or answer.head == "rel":
        return _same_relation(gold, answer, by)
    matrices = as_matrix(gold), as_matrix(answer)
    if matrices[0] is not None and matrices[1] is not None:
        return _same_matrix(matrices[0], matrices[1], by)
    if gold.head == answer.head == "seq":
        return _same_tuple(gold, answer, by)
    return same_value(gold, answer, by)


# -- relations -----------------------------------------------------------------------------------


def _same_relation(gold: Node, answer: Node, by: Comparison) -> Decision:
    (gold_name, gold_value), (name, value) = unwrap(gold), unwrap(answer)
    if gold.head == answer.head == "rel":
        congruences = ["equiv" in side.args[0] for side in (gold, answer)]
        if congruences[0] != congruences[1]:
            return Decision(False, "congruence")
    if gold_name is not None and name is not None:
        if gold_name == name or not by.policy.strict_variables:
            return _same(gold_value, value, by)
    elif gold_value.head != "rel" and value.head != "rel":
        return _same(gold_value, value, by)
    if gold.head == answer.head == "rel":
        return same_relation(gold, answer, by)
    return Decision(False, "kind")


# -- lists ---------------------------------------------------------------------------------------


def _same_list(gold: Node, answer: Node, by: Comparison) -> Decision:
    if answer.head == "seq" and answer.args[0] == "or" and not is_listed(gold):
        return _same_alternatives(gold, elements(answer), by)
    golds, answers = elements(gold), elements(answer)
    gold_names, names = _names(golds), _names(answers)
    if gold_names and names:
        if set(gold_names) == set(names) and len(set(names)) == len(names):
            values = dict(zip(names, _values(answers), strict=True))
            pairs = zip(gold_names, _values(golds), strict=True)
            same = all(_same(value, values[key], by).is_same for key, value in pairs)
            return Decision(same, "assignments")
        if by.policy.strict_variables and set(gold_names) != set(names):
            return Decision(False, "variables")
    golds, answers = _grouped(golds, gold_names), _grouped(answers, names)
    for ones, others in ((golds, answers), (answers, golds)):
        # x = 1, y = 2 is the point (1, 2), and so is 1, 2 in that order.
        if len(ones) == 1 < len(others) and ones[0].head == "seq" and len(ones[0].args) > 2:
            if answer.head == "seq" and "set" in (gold.args[0], answer.args[0]):
                continue
            if ones is golds:
                others = _in_order(others, names) if len(names) == len(others) else others
            return _same_each(ones[0].args[1:], others, by)
    if by.policy.list_order == "strict" and "set" not in (gold.args[0], answer.args[0]):
        return _same_each(golds, answers, by)
    return _same_unordered(golds, answers, by)


def _same_alternatives(gold: Node, alternatives: list[Node], by: Comparison) -> Decision:
    """Alternatives of one value decide, as "1/2 or 0.5" does; "5 or 6" decides nothing."""
    found = [_same(gold, unwrap(item)[1], by) for item in alternatives]
    if any(decision.is_same for decision in found) and not all(d.is_same for d in found):
        raise UndecidedError(VerdictStatus.AMBIGUOUS, "several answers, and no decision")
    return Decision(found[0].is_same, "alternatives")


def _names(items: list[Node]) -> list[Node]:
    """The names assigned to, where every item is an assignment; else none."""
    names = [unwrap(item)[0] for item in items if item.head == "rel"]
    return [n for n in names if n is not None] if len(names) == len(items) and all(names) else []


def _values(items: list[Node]) -> list[Node]:
    return [unwrap(item)[1] for item in items]


def _grouped(items: list[Node], names: list[Node]) -> list[Node]:
    """Values without their names; p = 5, q = 2, p = 7, q = 2 as (5, 2), (7, 2)."""
    values = _values(items)
    period = len(set(names))
    repeats = 1 < period < len(names) and names == names[:period] * (len(names) // period)
    if not repeats:
        return values
    starts = range(0, len(values), period)
    return [sequence("tuple", values[start : start + period]) for start in starts]


def _in_order(values: list[Node], names: list[Node]) -> list[Node]:
    """The values of y = 1, x = 2 as a point gives them: x first."""
    if not names or not all(name.head == "sym" for name in names):
        return values
    pairs = sorted(zip(names, values, strict=True), key=lambda pair: str(pair[0].args[0]))
    return [value for _, value in pairs]


def _same_unordered(golds: list[Node], answers: list[Node], by: Comparison) -> Decision:
    """One-to-one, each element counted once; equality is transitive, so greedy is enough."""
    if abs(len(golds) - len(answers)) > max(len(golds), len(answers)) // 2 + 1:
        return Decision(False, "size")
    golds, answers = _distinct(golds, by), _distinct(answers, by)
    whole = set(filter(_is_whole, golds)).intersection(answers)
    golds, answers = ([item for item in side if item not in whole] for side in (golds, answers))
    if len(golds) != len(answers):
        return Decision(False, "size")
    rest = list(answers)
    for gold in golds:
        match = next((i for i, item in enumerate(rest) if _same(gold, item, by).is_same), None)
        if match is None:
            return Decision(False, "elements")
        rest.pop(match)
    return Decision(True, "elements")


def _distinct(items: list[Node], by: Comparison) -> list[Node]:
    distinct: list[Node] = []
    for item in dict.fromkeys(items):
        if _is_whole(item) or not any(_same(other, item, by).is_same for other in distinct):
            distinct.append(item)
    return distinct


def _is_whole(node: Node) -> bool:
    """Whether it is a whole number as written: equal to another only if it is the same."""
    inner = node.args[0] if node.head == "neg" else node
    return bool(inner.head == "num" and inner.args[1] is None and isinstance(inner.args[0], int))


def _same_each(golds: Sequence[Node], answers: Sequence[Node], by: Comparison) -> Decision:
    if len(golds) != len(answers):
        return Decision(False, "size")
    pairs = zip(golds, answers, strict=True)
    return Decision(all(_same(one, other, by).is_same for one, other in pairs), "elements in order")


# -- brackets ------------------------------------------------------------------------------------


def _same_tuple(gold: Node, answer: Node, by: Comparison) -> Decision:
    if gold.args[0] != answer.args[0]:
        return Decision(False, "brackets")
    return _same_each(gold.args[1:], answer.args[1:], by)


def _same_matrix(
    gold: tuple[tuple[Node, ...], ...], answer: tuple[tuple[Node, ...], ...], by: Comparison
) -> Decision:
    if [len(row) for row in gold] != [len(row) for row in answer]:
        return Decision(False, "shape")
    pairs = [
        pair
        for rows in zip(gold, answer, strict=True)
        for pair in zip(*rows, strict=True)
    ]  # fmt: skip
    return Decision(all(_same(one, other, by).is_same for one, other in pairs), "entries")


def _renamed(answer: Node, gold: Node) -> Node:
    """The answer with its variables named as the gold's, in order of appearance."""
    mine, theirs = (
        list(dict.fromkeys(n.args[0] for n in walk(side) if n.head == "sym"))
        for side in (answer, gold)
    )
    if len(mine) != len(theirs) or symbols(answer) == symbols(gold):
        return answer
    return _substituted(answer, dict(zip(mine, theirs, strict=True)))


def _substituted(node: Node, names: dict[str, str]) -> Node:
    if node.head == "sym":
        return Node("sym", (names[node.args[0]],))
    return mapped(node, lambda arg: _substituted(arg, names))
