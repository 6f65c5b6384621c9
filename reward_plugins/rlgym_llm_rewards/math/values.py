"""Decides whether two values are the same: exact form, then decimals, then probes, then proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from rlgym_llm_rewards.math.algebra.canonical import canonical, is_exact
from rlgym_llm_rewards.math.algebra.effort import left, spend
from rlgym_llm_rewards.math.algebra.form import Form, TooLargeError, UndefinedError, rational
from rlgym_llm_rewards.math.algebra.probe import Probe, is_tame, probe, real_value
from rlgym_llm_rewards.math.number import is_finite_decimal
from rlgym_llm_rewards.math.parsing.nodes import (
    INFINITY,
    MINUS_INFINITY,
    Node,
    number,
    symbols,
    walk,
)
from rlgym_llm_rewards.math.parsing.tokens import UnreadableError
from rlgym_llm_rewards.math.parsing.units import UNITS, is_known_unit
from rlgym_llm_rewards.math.policy import Policy
from rlgym_llm_rewards.math.verdict import VerdictStatus

__all__ = [
    "Comparison",
    "Decision",
    "Prove",
    "UndecidedError",
    "form_of",
    "is_reduced",
    "is_worked_out",
    "same_value",
    "split_unit",
]

Prove = Callable[[Node, Node], bool | None]
"""Whether two values that agree at every point tried are equal; None where nothing can tell.
Raises UndecidedError where it reached its deadline."""


class Decision(NamedTuple):
    """Whether two things are the same, and the rule that says so."""

    is_same: bool
    rule: str


class UndecidedError(Exception):
    """Neither right nor wrong: ambiguous, too large, out of time."""

    def __init__(self, status: VerdictStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one comparison goes by."""

    policy: Policy
    prove: Prove


def same_value(gold: Node, answer: Node, by: Comparison) -> Decision:
    """Whether two values are equal; raises UndecidedError, UndefinedError.

    Exact values are compared exactly. A decimal stands for an irrational or endless value only
    with the digits that the policy asks for.
    """
    spend(10)
    gold, gold_unit = split_unit(gold)
    answer, answer_unit = split_unit(answer)
    if answer_unit is None and answer.head == "mul" and not symbols(gold):
        answer, answer_unit = _letter_unit(answer)
    elif gold_unit is None and gold.head == "mul" and answer_unit and not symbols(answer):
        gold, gold_unit = _letter_unit(gold)
    if not _units_agree(gold_unit, answer_unit, by.policy):
        return Decision(False, "unit")
    if gold == answer:
        return Decision(True, "identical")
    if gold_unit == answer_unit and gold_unit and gold_unit.startswith("mod "):
        return _congruent(gold, answer, gold_unit)
    percents = _is_percent(gold), _is_percent(answer)
    if (percents[0] and is_known_unit(answer_unit)) or (percents[1] and is_known_unit(gold_unit)):
        return Decision(False, "unit")
    if gold.head in _RATIOS and answer.head in _RATIOS:
        return _same_ratio(gold, answer, by)
    signs = [side.head == "neg" for side in (gold, answer)]
    bodies = [side.args[0] if side.head == "neg" else side for side in (gold, answer)]
    if any(body.head == "based" for body in bodies):
        digits = _same_digits(*bodies)
        return Decision(digits.is_same and signs[0] == signs[1], digits.rule)
    if percents[0] != percents[1] and by.policy.percent_bare:
        bare = _same_number(_bare(gold), _bare(answer), by)
        if bare.is_same:
            return Decision(True, "percent")
    return _same_number(gold, answer, by)


def form_of(node: Node) -> Form | None:
    """The exact form, None where it would be too large."""
    before = left()
    try:
        form, cost = _small_form(node)
    except _LargeForm as large:
        return large.form
    except TooLargeError:
        return None
    # A remembered form costs what it cost: a verdict does not depend on what came before it.
    spend(cost - (before - left()))
    return form


@lru_cache(maxsize=512)
def _small_form(node: Node) -> tuple[Form, int]:
    before = left()
    form = canonical(node)
    if sum(value.numerator.bit_length() for value in form.top.values()) > 10_000:
        raise _LargeForm(form)
    return form, before - left()


class _LargeForm(Exception):  # noqa: N818  it carries a form past the cache
    """A form that is not worth its memory."""

    def __init__(self, form: Form) -> None:
        super().__init__("a large form")
        self.form = form


def split_unit(node: Node) -> tuple[Node, str | None]:
    r"""A value and its unit: ``10 cm`` is 10 and ``cm``.

    >>> split_unit(Node("neg", (Node("unit", (number(3), "m")),)))[1]
    'm'
    """
    if node.head == "unit":
        return node.args[0], node.args[1]
    if node.head == "neg":
        inner, unit = split_unit(node.args[0])
        return Node("neg", (inner,)), unit
    return node, None


def _letter_unit(node: Node) -> tuple[Node, str | None]:
    """``10m^2`` as ten square metres, where the other side has no variable that m could be."""
    *factors, last = node.args
    base, exponent = last.args if last.head == "pow" else (last, number(1))
    if (
        base.head != "sym"
        or base.args[0] not in UNITS
        or exponent not in (number(1), number(2), number(3))
    ):
        return node, None
    unit = UNITS[base.args[0]] + ("" if last is base else f"^{exponent.args[0]}")
    return (factors[0] if len(factors) == 1 else Node("mul", tuple(factors))), unit


def _units_agree(gold: str | None, answer: str | None, policy: Policy) -> bool:
    known = [unit if is_known_unit(unit) else None for unit in (gold, answer)]
    if known[0] and known[1]:
        return known[0] == known[1]
    if policy.units == "match":
        return known[0] == known[1]
    return not (policy.units == "require" and known[0])


def _is_percent(node: Node) -> bool:
    return node.head == "percent" or (node.head == "neg" and _is_percent(node.args[0]))


def _bare(node: Node) -> Node:
    """A percentage as the number it is written with."""
    if node.head == "percent":
        inner: Node = node.args[0]
        return inner
    return Node("neg", (_bare(node.args[0]),)) if node.head == "neg" else node


def _same_digits(gold: Node, answer: Node) -> Decision:
    """Numbers with a base: the base must agree where both write it, and the digits always."""
    written = [
        node.args if node.head == "based"
        else (str(node.args[0]), None) if node.head == "num" else (None, None)
        for node in (gold, answer)
    ]  # fmt: skip
    (gold_digits, gold_base), (digits, base) = written
    same = gold_digits == digits and digits is not None
    return Decision(same and (gold_base == base or None in (gold_base, base)), "base")


def _congruent(gold: Node, answer: Node, modulus: str) -> Decision:
    """Whether two whole numbers leave the same rest: 10 is 3 modulo 7."""
    divisor = modulus.removeprefix("mod ")
    forms = [form_of(gold), form_of(answer)]
    one, other = (None if form is None else rational(form) for form in forms)
    if one is None or other is None or not divisor.isdigit() or divisor == "0":
        return Decision(False, "congruence")
    return Decision((one - other) % int(divisor) == 0, "congruence")


_RATIOS = ("ratio", "time")


def _same_ratio(gold: Node, answer: Node, by: Comparison) -> Decision:
    """Ratios by proportion (6:8 is 3:4), times of day part by part."""
    if len(gold.args) != len(answer.args):
        return Decision(False, "size")
    if gold.head == "time" or number(0) in (*gold.args, *answer.args):
        pairs = list(zip(gold.args, answer.args, strict=True))
    else:
        pairs = [
            (Node("mul", (one, answer.args[0])), Node("mul", (other, gold.args[0])))
            for one, other in zip(gold.args[1:], answer.args[1:], strict=True)
        ]
    return Decision(all(same_value(*pair, by).is_same for pair in pairs), gold.head)


def _same_number(gold: Node, answer: Node, by: Comparison) -> Decision:
    if not {gold, answer}.isdisjoint((INFINITY, MINUS_INFINITY)):
        return Decision(gold == answer, "infinity")
    try:
        gold_form, form = form_of(gold), form_of(answer)
        terms = None if gold_form is None or form is None else gold_form.difference(form)
    except UnreadableError:
        return Decision(False, "kind")
    except TooLargeError:
        gold_form = form = terms = None
    if terms is not None and not terms:
        return Decision(True, "exact")
    if _rounds_to(answer, gold, gold_form, by.policy) or _rounds_to(gold, answer, form, by.policy):
        return Decision(True, "rounded")
    if by.policy.gold_rounding and _gold_rounds(gold, answer):
        return Decision(True, "gold rounded")
    if terms is not None and is_exact(terms):
        return Decision(False, "exact")
    seen = probe(gold, answer)
    if seen is Probe.DIFFERENT:
        return Decision(False, "probe")
    if seen is Probe.TOO_LARGE:
        raise UndecidedError(VerdictStatus.LIMIT, "a value too large to be worked out")
    if seen is Probe.UNKNOWN:
        return Decision(False, "structure")
    # What agrees in fifty digits at every point is equal, unless it was made to come close.
    tame = is_tame(gold) and is_tame(answer)
    try:
        proof = by.prove(gold, answer)
    except UndecidedError:
        if not tame:
            raise
        proof = None
    if proof is False and tame and (symbols(gold) or symbols(answer)):
        proof = None  # refuted where the values are not real: ln(x^2 - 1) at x < -1
    return Decision(proof is not False, "probe" if proof is None else "symbolic")


def _decimal(node: Node) -> tuple[Fraction, int] | None:
    """Value and places of a number written with a decimal point."""
    if node.head == "neg":
        inner = _decimal(node.args[0])
        return None if inner is None else (-inner[0], inner[1])
    if node.head == "num" and node.args[1] is not None:
        return Fraction(node.args[0]), node.args[1]
    return None


def _rounds_to(decimal: Node, exact: Node, form: Form | None, policy: Policy) -> bool:
    """Whether a decimal of enough digits stands for a value that has no finite decimal."""
    written = _decimal(decimal)
    if written is None or not policy.min_digits or symbols(exact):
        return False
    value, places = written
    if len(str(abs(int(value * 10**places)))) < policy.min_digits:
        return False
    whole = None if form is None else rational(form)
    if whole is not None and is_finite_decimal(whole):
        return False
    return _within_half(exact, value, places)


def _within_half(exact: Node, value: Fraction, places: int) -> bool:
    """Whether a constant lies within half a unit of the last digit of a decimal."""
    real = real_value(exact)
    if real is None:
        return False
    scaled = real * 10**places
    # A float64 printed in full is off by its own rounding, in the seventeenth digit.
    return bool(abs(scaled - int(value * 10**places)) <= max(0.5, abs(scaled) * 1e-15))


def _gold_rounds(gold: Node, answer: Node) -> bool:
    written = _decimal(gold)
    if written is None or len(str(abs(int(written[0] * 10 ** written[1])))) < 3:
        return False
    return _within_half(answer, *written)


def is_worked_out(node: Node) -> bool:
    """Whether no arithmetic between numbers is left to do: 17 * 23 is not worked out.

    >>> from rlgym_llm_rewards.math.parsing.parse import parse
    >>> is_worked_out(parse("17 * 23")), is_worked_out(parse("391 + x"))
    (False, True)
    """
    return all(
        n.head not in ("add", "mul", "pow", "call") or symbols(n) or not _is_rational(n)
        for n in walk(node)
    )


def is_reduced(node: Node) -> bool:
    """Whether every quotient of two whole numbers is in lowest terms: 2/4 is not."""
    for n in walk(node):
        if n.head == "div" and all(part.head == "num" for part in n.args):
            top, bottom = (part.args[0] for part in n.args)
            if bottom and Fraction(top, bottom).denominator != abs(bottom):
                return False
    return True


def _is_rational(node: Node) -> bool:
    try:
        form = form_of(node)
    except (UnreadableError, UndefinedError):
        return False
    return form is not None and rational(form) is not None
