"""Evaluates two trees at the same points, in 50 digits or more: most wrong answers end here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

from rlgym_llm_rewards.math.algebra.effort import spend
from rlgym_llm_rewards.math.parsing.nodes import Node, symbols, walk

__all__ = ["Probe", "evaluate", "is_tame", "probe", "real_value"]

DIGITS = 50
_SCALES = (1, 1, 0.3, 0.3, 5, 5, 40, 40, 1000, 1000)
"""Sizes of the points; every second one has negative coordinates: |x - 5| is not 5 - x."""
_MAX_MAGNITUDE = 100_000
"""Largest binary exponent of a value that is worked with further."""


class Probe(Enum):
    """What the points say."""

    EQUAL = "equal"
    """Wherever both are defined and real they agree: probably equal."""
    DIFFERENT = "different"
    """They differ at a point, and are certainly different."""
    UNKNOWN = "unknown"
    """Nowhere could both be worked out."""
    TOO_LARGE = "too_large"
    """Nowhere, for their size."""


class _UnknownError(Exception):
    """The tree holds what cannot be worked out in numbers, or a value without bounds."""


class _TooLargeError(_UnknownError):
    """A value without bounds."""


_local = threading.local()


def _mp() -> Any:
    """This thread's own arithmetic: its precision is nobody else's."""
    context = getattr(_local, "context", None)
    if context is None:
        from mpmath.ctx_mp import MPContext

        context = _local.context = MPContext()
        context.dps = DIGITS
    return context


def probe(left: Node, right: Node) -> Probe:
    r"""Compares the values at ten points; the points depend on the variables' names only.

    Points where a value, or what it is made of, is not real are left out, unless the imaginary
    unit is in play: sqrt(x) sqrt(y) is sqrt(xy) for all that people mean by it.

    >>> from rlgym_llm_rewards.math.parsing.parse import parse
    >>> probe(parse("(x+1)^2"), parse("x^2+2x+1")), probe(parse(r"\sqrt{x^2}"), parse("x"))
    (<Probe.EQUAL: 'equal'>, <Probe.DIFFERENT: 'different'>)
    """
    names = sorted(symbols(left) | symbols(right))
    is_complex = any(n == Node("const", ("i",)) for side in (left, right) for n in walk(side))
    is_real = bool(names) and not is_complex
    context = _mp()
    # A difference as small as the smallest digit written must still be seen.
    digits = DIGITS + sum(_digits(n) for side in (left, right) for n in walk(side))
    context.dps = min(digits, 3 * DIGITS)
    cost = sum(map(_cost, (*walk(left), *walk(right))))
    num_equal = 0
    unknown = Probe.UNKNOWN
    for point in _points(names, context):
        spend(cost)
        try:
            a, b = (evaluate(side, point, real=is_real) for side in (left, right))
        except _TooLargeError:
            unknown = Probe.TOO_LARGE
            continue
        except _UnknownError:
            continue
        if not is_complex and (_is_complex(a) or _is_complex(b)):
            continue
        if not _close(a, b, context):
            return Probe.DIFFERENT
        num_equal += 1
    return Probe.EQUAL if num_equal >= min(2, 1 + len(names)) else unknown


def is_tame(node: Node) -> bool:
    """Whether it holds no number or power from which a value of 1e-40 or 1e40 could be made."""
    return all(
        abs(n.args[0]) < 10**12 and n.args[0].denominator < 10**12
        for n in walk(node)
        if n.head == "num"
    ) and all(_is_small(n.args[1]) for n in walk(node) if n.head == "pow")


def _is_small(exponent: Node) -> bool:
    value = real_value(exponent)
    return abs(value) <= 12 if value is not None else bool(symbols(exponent))


def evaluate(node: Node, point: Mapping[str, Any] | None = None, *, real: bool = False) -> Any:
    """The value at a point, an mpmath number; raises `_UnknownError` where there is none.

    ``real``: neither may a part of it be complex.
    """
    try:
        value = _value(node, point or {}, real)
    except (ZeroDivisionError, ValueError, OverflowError, TypeError) as impossible:
        raise _UnknownError(str(impossible)) from None
    context = _mp()
    if not context.isfinite(value):
        raise _UnknownError("no finite value")
    return value


def real_value(node: Node) -> Any:
    """The value of a constant as an mpmath real number, None where it has none."""
    _mp().dps = DIGITS
    try:
        value = evaluate(node)
    except _UnknownError:
        return None
    return None if _is_complex(value) else _mp().re(value)


def _points(names: list[str], context: Any) -> Iterator[dict[str, Any]]:
    if not names:
        yield {}
        return
    for number, scale in enumerate(_SCALES):
        point = {}
        for index, name in enumerate(names):
            # Irrational steps: no two coordinates stand in a simple relation.
            value = context.frac(context.sqrt(2) * (3 * index + 7 * number + 1) ** 2) * 2 + 0.3
            is_negative = number % 2 and (index == 0 or (number // 2 + index) % 2)
            point[name] = -value * scale if is_negative else value * scale
        yield point


def _cost(node: Node) -> int:
    return _COSTS.get(node.args[0], 50) if node.head == "call" else 2


def _digits(node: Node) -> int:
    return len(str(node.args[0])) if node.head == "num" else 0


def _is_complex(value: Any) -> bool:
    context = _mp()
    return isinstance(value, context.mpc) and abs(value.imag) > context.mpf(10) ** (
        8 - context.dps
    ) * (1 + abs(value.real))


def _close(a: Any, b: Any, context: Any) -> bool:
    size = max(abs(a), abs(b))
    # The last ten digits are left to rounding and cancellation.
    return bool(abs(a - b) <= size * context.mpf(10) ** (10 - context.dps))


def _value(node: Node, point: Mapping[str, Any], real: bool) -> Any:
    value = _worked_out(node, point, real)
    if real and _is_complex(value):
        raise _UnknownError("a part that is not real")
    return value


def _worked_out(node: Node, point: Mapping[str, Any], real: bool) -> Any:
    context = _mp()
    head, args = node
    if head == "num":
        number = args[0]
        if isinstance(number, Fraction):
            return context.mpf(number.numerator) / number.denominator
        return context.mpf(number)
    if head == "sym":
        if args[0] not in point:
            raise _UnknownError("a variable without a value")
        return point[args[0]]
    if head == "const":
        return _constant(args[0], context)
    if head == "pow":
        return _power(_value(args[0], point, real), _value(args[1], point, real), context)
    if head == "root":
        return _power(_value(args[0], point, real), 1 / _value(args[1], point, real), context)
    if head == "call":
        values = [_value(arg, point, real) for arg in args[1:] if isinstance(arg, Node)]
        return _bounded(_call(args[0], values, context), context)
    if head == "based":
        return context.mpf(int(args[0], int(args[1])))
    values = [_value(arg, point, real) for arg in args if isinstance(arg, Node)]
    if head == "add":
        return context.fsum(values)
    if head == "mul":
        return _bounded(context.fprod(values), context)
    if head == "neg":
        return -values[0]
    if head in ("div", "ratio", "time") and len(values) == 2:
        return values[0] / values[1]
    if head == "percent":
        return values[0] / 100
    if head == "unit":
        return values[0]
    raise _UnknownError(f"a {head} has no number")


def _constant(name: str, context: Any) -> Any:
    if name == "pi":
        return +context.pi
    if name == "e":
        return +context.e
    if name == "i":
        return context.mpc(0, 1)
    raise _UnknownError(f"{name} is no number")


def _power(base: Any, exponent: Any, context: Any) -> Any:
    if base == 0:
        if exponent == 0 or _is_complex(exponent) or context.re(exponent) < 0:
            raise _UnknownError("zero to that power")
        return context.mpf(0)
    size = abs(exponent) * (1 + abs(context.log(abs(base), 2)))
    if size > _MAX_MAGNITUDE:
        raise _TooLargeError("a power without bounds")
    if isinstance(base, context.mpf) and base < 0 and isinstance(exponent, context.mpf):
        # An odd root of a negative number is negative, as people mean it.
        for index in (3, 5, 7, 9):
            scaled = exponent * index
            whole = context.nint(scaled)
            if abs(scaled - whole) < context.mpf(10) ** (
                5 - context.dps
            ) and exponent != context.nint(exponent):
                sign = -1 if int(whole) % 2 else 1
                return sign * (-base) ** exponent
    return base**exponent


def _bounded(value: Any, context: Any) -> Any:
    size = abs(value)
    if size and context.isfinite(size) and abs(context.mag(size)) > _MAX_MAGNITUDE:
        raise _TooLargeError("a value without bounds")
    return value


def _call(name: str, values: list[Any], context: Any) -> Any:
    if len(values) == 1:
        function = _UNARY.get(name)
        if function is not None:
            return getattr(context, function)(values[0])
        if name == "lg":
            return context.log(values[0], 10)
        if name == "log2":
            return context.log(values[0], 2)
        if name == "sgn":
            return context.sign(values[0])
    elif len(values) == 2:
        if name == "log":
            return context.log(values[0]) / context.log(values[1])
        if name == "binom":
            return context.binomial(*values)
        if name == "mod" and max(map(abs, values)) < 10**15:
            return values[0] - values[1] * context.floor(values[0] / values[1])
    if name in ("max", "min") and values and not any(map(_is_complex, values)):
        return max(values) if name == "max" else min(values)
    raise _UnknownError(f"the function {name}")


_COSTS = {"factorial": 250, "gamma": 250, "binom": 750}
"""Of these functions, in units of `effort`."""

_UNARY = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsec": "asec",
    "arccsc": "acsc", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "coth": "coth",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "exp": "exp", "log": "log", "ln": "log", "abs": "fabs", "norm": "fabs", "floor": "floor",
    "ceil": "ceil", "factorial": "factorial", "gamma": "gamma", "Re": "re", "Im": "im",
    "arg": "arg",
}  # fmt: skip
"""Functions by the name mpmath has for them."""
