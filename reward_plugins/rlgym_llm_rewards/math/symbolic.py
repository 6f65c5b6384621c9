"""The last step, with sympy: proves or refutes that two values are equal. Runs in the sandbox.

Only trees of our own parser come here; no text of the model reaches sympy, which would run it.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy
from sympy.core.cache import clear_cache

from rlgym_llm_rewards.math.parsing.nodes import Node, from_json

__all__ = ["prove"]


PATIENCE_S = 0.35
"""How long sympy may think. Given up in time, the worker lives on for the next proof."""


def prove(pair: list[Any]) -> bool | None:
    """Whether two trees (as JSON) have the same value; None where sympy tells neither in time.

    Variables are real; where that is not enough they are taken to be positive, since the values
    have been seen to agree wherever both are real.
    """
    alarm = threading.Timer(PATIENCE_S, _thread.interrupt_main)
    alarm.start()
    try:
        try:
            return _proved(*map(from_json, pair))
        finally:
            alarm.cancel()
            alarm.join()  # an interrupt that is on its way arrives here, not in the next proof
    except KeyboardInterrupt:
        return None
    finally:
        clear_cache()  # no proof helps another, and the cache would grow for thousands of them


def _proved(left: Node, right: Node) -> bool | None:
    refuted = False
    for positive in (False, True):
        difference = _to_sympy(left, positive) - _to_sympy(right, positive)
        if _simplified(difference) == 0:
            return True
        equal = difference.equals(0)
        if equal:
            return True
        refuted = refuted or equal is False
    return False if refuted else None


def _simplified(expression: Any) -> Any:
    expanded = sympy.expand(sympy.expand_func(expression))
    return expanded if expanded == 0 else sympy.simplify(expanded)


def _to_sympy(node: Node, positive: bool) -> Any:
    """The sympy expression of a tree; raises for what is no number."""
    head, args = node
    if head == "num":
        value = Fraction(args[0])
        return sympy.Rational(value.numerator, value.denominator)
    if head == "sym":
        return sympy.Symbol(args[0], real=True, positive=True if positive else None)
    if head == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}[args[0]]
    if head == "based":
        return sympy.Integer(int(args[0], int(args[1])))
    values = [_to_sympy(arg, positive) for arg in args if isinstance(arg, Node)]
    if head == "call":
        return _functions()[args[0]](*values)
    return _OPERATIONS[head](*values)


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_Rational and exponent.q % 2 and base.is_negative:
        # An odd root of a negative number is negative, as people mean it.
        return sympy.Integer(-1) ** exponent.p * (-base) ** exponent
    return base**exponent


def _product(*values: Any) -> Any:
    return sympy.Mul(*values)


def _sum(*values: Any) -> Any:
    return sympy.Add(*values)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _sum,
    "mul": _product,
    "neg": lambda x: -x,
    "div": lambda top, bottom: top / bottom,
    "ratio": lambda top, bottom: top / bottom,
    "time": lambda top, bottom: top / bottom,
    "pow": _power,
    "root": lambda x, index: _power(x, 1 / index),
    "percent": lambda x: x / 100,
    "unit": lambda x: x,
}


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot,
        "sec": sympy.sec, "csc": sympy.csc, "arcsin": sympy.asin, "arccos": sympy.acos,
        "arctan": sympy.atan, "arccot": sympy.acot, "arcsec": sympy.asec, "arccsc": sympy.acsc,
        "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh, "coth": sympy.coth,
        "arcsinh": sympy.asinh, "arccosh": sympy.acosh, "arctanh": sympy.atanh,
        "exp": sympy.exp, "log": sympy.log, "ln": sympy.log, "abs": sympy.Abs, "norm": sympy.Abs,
        "lg": lambda x: sympy.log(x, 10), "log2": lambda x: sympy.log(x, 2),
        "floor": sympy.floor, "ceil": sympy.ceiling, "factorial": sympy.factorial,
        "gamma": sympy.gamma, "binom": sympy.binomial, "mod": sympy.Mod, "sgn": sympy.sign,
        "max": sympy.Max, "min": sympy.Min, "Re": sympy.re, "Im": sympy.im, "arg": sympy.arg,
    }  # fmt: skip
