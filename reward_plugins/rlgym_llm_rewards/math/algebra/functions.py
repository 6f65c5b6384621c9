"""Functions of forms: logarithms, factorials and trigonometry by exact rewriting."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from rlgym_llm_rewards.math.algebra.form import (
    I_ATOM,
    ONE,
    ZERO,
    Form,
    Monomial,
    Rational,
    UndefinedError,
    atom,
    constant,
    factorize,
    is_positive,
    magnitude,
    rational,
    total,
)
from rlgym_llm_rewards.math.algebra.powers import power

__all__ = ["apply", "exponential"]

_MAX_FACTORIAL = 2_500
_PI = atom(("const", "pi"))
_HALF = Fraction(1, 2)


def apply(name: str, values: list[Form]) -> Form:
    """A function's value; what no rule rewrites is an atom of its own.

    >>> apply("ln", [constant(8)]).equals(constant(3) * apply("log", [constant(2)]))
    True
    """
    function = _FUNCTIONS.get((name, len(values)))
    if function is not None:
        return function(*values)
    if name in ("max", "min", "gcd", "lcm"):
        return _of_many(name, values)
    return atom(("call", name, *values))


def exponential(exponent: Form) -> Form:
    """The exponential; a part i*pi*q turns."""
    turn = frozenset([(I_ATOM, 1), (("const", "pi"), 1)])
    angle = exponent.top.get(turn) if exponent.bottom == ONE.top else None
    if angle is None:
        return power(atom(("const", "e")), exponent)
    rest = Form({m: v for m, v in exponent.top.items() if m != turn}, ONE.top)
    return exponential(rest) * (_cos_pi(angle) + atom(I_ATOM) * _cos_pi(_HALF - Fraction(angle)))


def _log(value: Form) -> Form:
    """The natural logarithm."""
    if not value.top:
        raise UndefinedError("the logarithm of zero")
    if len(value.top) != 1 or value.bottom != ONE.top:
        return atom(("call", "log", value))
    ((monomial, coefficient),) = value.top.items()
    if coefficient < 0 or not all(
        base[0] == "prime" or base == ("const", "e") for base, _ in monomial
    ):
        return atom(("call", "log", value))
    parts: list[Form] = [
        constant(sign * times) * atom(("call", "log", constant(prime)))
        for number, sign in ((coefficient.numerator, 1), (coefficient.denominator, -1))
        for prime, times in factorize(number)
    ]
    for base, exponent in monomial:
        times = exponent if isinstance(exponent, Form) else constant(exponent)
        parts.append(times * (ONE if base[0] == "const" else _log(constant(base[1]))))
    return total(parts)


def _log_base(value: Form, base: Form) -> Form:
    return _log(value) / _log(base)


def _abs(value: Form) -> Form:
    number = rational(value)
    if number is not None:
        return constant(magnitude(number))
    if len(value.top) != 1 or value.bottom != ONE.top:
        # |a - b| and |b - a| are one atom: that of the smaller hash of all but the signs.
        _, sign = min((hash(monomial), value) for monomial, value in value.top.items())
        return atom(("call", "abs", value if sign > 0 else -value))
    ((monomial, coefficient),) = value.top.items()
    result = constant(magnitude(coefficient))
    for base, exponent in monomial:
        positive = is_positive(base) or base[:2] == ("call", "abs")
        one = atom(base, exponent)
        result = result * (one if positive else atom(("call", "abs", one)))
    return result


def _factorial(value: Form) -> Form:
    number = rational(value)
    if number is not None:
        if number.denominator != 1 or number < 0:
            return atom(("call", "factorial", value))
        if number > _MAX_FACTORIAL:
            return atom(("call", "factorial", value))
        return constant(math.factorial(int(number)))
    shift: Rational = value.top.get(frozenset(), 0) if value.bottom == ONE.top else 0
    if shift.denominator != 1 or not shift or magnitude(shift) > 20:
        return atom(("call", "factorial", value))
    # (n+2)! = n! (n+1)(n+2); (n-1)! = n!/n: one base, one form.
    base = value - constant(shift)
    result = atom(("call", "factorial", base))
    for step in range(1, int(shift) + 1):
        result = result * (base + constant(step))
    for step in range(int(shift) + 1, 1):
        result = result / (base + constant(step))
    return result


def _binomial(n: Form, k: Form) -> Form:
    top, bottom = rational(n), rational(k)
    if top is not None and bottom is not None and top.denominator == bottom.denominator == 1:
        if 0 <= top <= _MAX_FACTORIAL and bottom >= 0:
            return constant(math.comb(int(top), int(bottom)))
    elif bottom is not None and bottom.denominator == 1 and 0 <= bottom <= 10:
        result = ONE
        for step in range(int(bottom)):
            result = result * (n - constant(step)) / constant(step + 1)
        return result
    if top is None or bottom is None:
        return _factorial(n) / (_factorial(k) * _factorial(n - k))
    return atom(("call", "binom", n, k))


def _rounded(name: str, function: Callable[[Fraction], int]) -> Callable[[Form], Form]:
    def work(value: Form) -> Form:
        number = rational(value)
        return (
            atom(("call", name, value)) if number is None else constant(function(Fraction(number)))
        )

    return work


def _modulo(value: Form, divisor: Form) -> Form:
    left, right = rational(value), rational(divisor)
    if left is None or right is None:
        return atom(("call", "mod", value, divisor))
    if right == 0:
        raise UndefinedError("a division by zero")
    return constant(left % right)


def _of_many(name: str, values: list[Form]) -> Form:
    numbers = [rational(value) for value in values]
    if any(number is None for number in numbers) or not numbers:
        return atom(("call", name, frozenset(values)))
    known = [number for number in numbers if number is not None]
    if name in ("max", "min"):
        return constant(max(known) if name == "max" else min(known))
    if any(number.denominator != 1 for number in known):
        raise UndefinedError(f"the {name} of fractions")
    whole = [int(number) for number in known]
    return constant(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


# -- trigonometry --------------------------------------------------------------------------------

_COSINES: dict[Fraction, Form] = {
    Fraction(0): ONE,
    Fraction(1, 6): power(constant(3), _HALF) / constant(2),
    Fraction(1, 4): power(constant(2), _HALF) / constant(2),
    Fraction(1, 3): constant(_HALF),
    Fraction(1, 2): ZERO,
    Fraction(1, 12): (power(constant(6), _HALF) + power(constant(2), _HALF)) / constant(4),
    Fraction(5, 12): (power(constant(6), _HALF) - power(constant(2), _HALF)) / constant(4),
    Fraction(1, 5): (ONE + power(constant(5), _HALF)) / constant(4),
    Fraction(2, 5): (power(constant(5), _HALF) - ONE) / constant(4),
}
"""Cosines of these multiples of pi."""


def _cos_pi(turns: int | Fraction) -> Form:
    """The cosine of a multiple of pi, exact where it is a root of low degree."""
    angle = abs(Fraction(turns)) % 2
    angle = 2 - angle if angle > 1 else angle
    known = _COSINES.get(angle)
    if known is not None:
        return known
    mirrored = _COSINES.get(1 - angle)
    return atom(("call", "cos", constant(angle) * _PI)) if mirrored is None else -mirrored


def _sin_cos(value: Form) -> tuple[Form, Form]:
    """Sine and cosine by the sines and cosines of single angles."""
    if value.bottom != ONE.top or len(value.top) > 4:
        return atom(("call", "sin", value)), atom(("call", "cos", value))
    sine, cosine = ZERO, ONE
    for monomial, coefficient in value.top.items():
        if monomial == frozenset([(("const", "pi"), 1)]):
            s, c = _cos_pi(_HALF - Fraction(coefficient)), _cos_pi(coefficient)
        else:
            s, c = _multiple(monomial, coefficient)
        sine, cosine = sine * c + cosine * s, cosine * c - sine * s
    return sine, cosine


def _multiple(monomial: Monomial, coefficient: Rational) -> tuple[Form, Form]:
    times = abs(coefficient.numerator)
    if times > 8:
        times = 1
        angle = Form({monomial: magnitude(coefficient)}, ONE.top)
    else:
        angle = Form({monomial: Fraction(1, coefficient.denominator)}, ONE.top)
        if coefficient.denominator == 1:
            angle = Form({monomial: 1}, ONE.top)
    s, c = atom(("call", "sin", angle)), atom(("call", "cos", angle))
    sine, cosine = ZERO, ONE
    for _ in range(times):
        sine, cosine = sine * c + cosine * s, cosine * c - sine * s
    return (sine if coefficient > 0 else -sine), cosine


def _trigonometric(name: str) -> Callable[[Form], Form]:
    def work(value: Form) -> Form:
        sine, cosine = _sin_cos(value)
        return {
            "sin": lambda: sine,
            "cos": lambda: cosine,
            "tan": lambda: sine / cosine,
            "cot": lambda: cosine / sine,
            "sec": lambda: ONE / cosine,
            "csc": lambda: ONE / sine,
        }[name]()

    return work


def _inverse(name: str) -> Callable[[Form], Form]:
    """The inverse functions at the values of the table."""

    def work(value: Form) -> Form:
        if all(base[0] == "prime" for monomial in value.top for base, _ in monomial):
            for angle in _COSINES:
                for turns in (angle, 1 - angle):
                    cosine = _cos_pi(turns)
                    if name == "arccos" and cosine.equals(value):
                        return constant(turns) * _PI
                    turned = _HALF - turns
                    if name == "arcsin" and cosine.equals(value):
                        return constant(turned) * _PI
                    if name == "arctan" and cosine.top:
                        tangent = _cos_pi(_HALF - turns) / cosine
                        if tangent.equals(value):
                            return constant(turns if turns < _HALF else turns - 1) * _PI
        return atom(("call", name, value))

    return work


def _hyperbolic(name: str) -> Callable[[Form], Form]:
    def work(value: Form) -> Form:
        up, down = exponential(value), exponential(-value)
        if name == "sinh":
            return (up - down) / constant(2)
        if name == "cosh":
            return (up + down) / constant(2)
        return (up - down) / (up + down) if name == "tanh" else (up + down) / (up - down)

    return work


_FUNCTIONS: dict[tuple[str, int], Callable[..., Form]] = {
    ("exp", 1): exponential,
    ("log", 1): _log,
    ("ln", 1): _log,
    ("log", 2): _log_base,
    ("lg", 1): lambda value: _log_base(value, constant(10)),
    ("log2", 1): lambda value: _log_base(value, constant(2)),
    ("cis", 1): lambda value: exponential(atom(I_ATOM) * value),
    ("abs", 1): _abs,
    ("factorial", 1): _factorial,
    ("gamma", 1): lambda value: _factorial(value - ONE),
    ("binom", 2): _binomial,
    ("mod", 2): _modulo,
    ("floor", 1): _rounded("floor", math.floor),
    ("ceil", 1): _rounded("ceil", math.ceil),
    ("sgn", 1): _rounded("sgn", lambda x: (x > 0) - (x < 0)),
    **{(name, 1): _trigonometric(name) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{(name, 1): _inverse(name) for name in ("arcsin", "arccos", "arctan")},
    ("arcsinh", 1): lambda x: _log(x + power(x * x + ONE, _HALF)),
    ("arccosh", 1): lambda x: _log(x + power(x * x - ONE, _HALF)),
    ("arctanh", 1): lambda x: _log((ONE + x) / (ONE - x)) / constant(2),
    **{(name, 1): _hyperbolic(name) for name in ("sinh", "cosh", "tanh", "coth")},
}
