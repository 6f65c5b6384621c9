"""Powers and roots of forms: what can be taken out is, and the rest stays one atom."""

from __future__ import annotations

import math
from fractions import Fraction

from rlgym_llm_rewards.math.algebra.form import (
    EMPTY,
    I_ATOM,
    MAX_BITS,
    MAX_EXPANDED,
    ONE,
    ZERO,
    Exponent,
    Form,
    Monomial,
    Rational,
    Terms,
    UndefinedError,
    as_form,
    atom,
    constant,
    factorize,
    is_positive,
    lowest,
    magnitude,
    normal,
    rational,
    repeated,
)

__all__ = ["power"]


def power(base: Form, exponent: Exponent) -> Form:
    """A value to an exponent; raises UndefinedError where there is none.

    >>> half = Fraction(1, 2)
    >>> power(constant(8), half).equals(constant(2) * power(constant(2), half))
    True
    """
    if isinstance(exponent, Form):
        whole = rational(exponent)
        if whole is None:
            return _symbolic_power(base, exponent)
        exponent = whole
    exponent = lowest(exponent)
    if exponent == 0:
        if not base.top:
            raise UndefinedError("zero to the power of zero")
        return ONE
    if not base.top:
        if exponent < 0:
            raise UndefinedError("a division by zero")
        return ZERO
    if exponent == 1:
        return base
    top = _terms_power(base.top, exponent)
    return top if base.bottom == ONE.top else top / _terms_power(base.bottom, exponent)


def _terms_power(terms: Terms, exponent: Rational) -> Form:
    """A sum to a rational power."""
    if len(terms) == 1:
        ((monomial, value),) = terms.items()
        return _monomial_power(value, monomial, exponent)
    if isinstance(exponent, int) and 0 < abs(exponent) <= MAX_EXPANDED:
        whole = repeated(Form(terms, ONE.top), abs(exponent))
        return whole if exponent > 0 else ONE / whole
    if exponent == Fraction(1, 2) and (simple := _denested(terms)) is not None:
        return simple
    content, primitive = _content(terms)
    return _monomial_power(content, EMPTY, exponent) * atom(("sum", primitive), exponent)


def _denested(terms: Terms) -> Form | None:
    """sqrt(a + b sqrt(c)) as sqrt(p) + sqrt(q), where a^2 - b^2 c is a square (else None)."""
    whole = terms.get(EMPTY)
    if whole is None or len(terms) != 2 or whole <= 0:
        return None
    ((monomial, factor),) = ((m, v) for m, v in terms.items() if m)
    if not all(base[0] == "prime" and e == Fraction(1, 2) for base, e in monomial):
        return None
    radicand = math.prod(base[1] for base, _ in monomial)
    square = Fraction(whole) ** 2 - Fraction(factor) ** 2 * radicand
    root = _square_root(square)
    if root is None:
        return None
    large, small = (Fraction(whole + sign * root) / 2 for sign in (1, -1))
    half = Fraction(1, 2)
    other = _rational_power(lowest(small), half)
    return _rational_power(lowest(large), half) + (other if factor > 0 else -other)


def _square_root(value: Fraction) -> Fraction | None:
    if value < 0:
        return None
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    return Fraction(top, bottom) if Fraction(top, bottom) ** 2 == value else None


def _content(terms: Terms) -> tuple[Rational, Form]:
    """The positive rational that all coefficients share, and the rest."""
    top, bottom = 0, 1
    for value in terms.values():
        top = math.gcd(top, value.numerator)
        bottom = math.lcm(bottom, value.denominator)
    content = Fraction(top, bottom)
    rest: Terms = {monomial: lowest(value / content) for monomial, value in terms.items()}
    return lowest(content), Form(rest, ONE.top)


def _monomial_power(value: Rational, monomial: Monomial, exponent: Rational) -> Form:
    scaled = {
        base: e * constant(exponent) if isinstance(e, Form) else e * exponent
        for base, e in monomial
    }
    if isinstance(exponent, int):
        return _rational_power(value, exponent) * normal(1, scaled)
    if monomial == EMPTY or (value > 0 and all(is_positive(base) for base, _ in monomial)):
        return _rational_power(value, exponent) * normal(1, scaled)
    ((base, e), *others) = monomial
    if not others and e == 1 and value > 0:
        return _rational_power(value, exponent) * atom(base, exponent)
    if exponent == Fraction(1, 2) and value > 0 and not others and e == 2:
        # Variables are real: the square root of x^2 is |x|.
        return _rational_power(value, exponent) * atom(("call", "abs", atom(base)))
    sign = 1 if value > 0 else -1
    return _rational_power(magnitude(value), exponent) * atom(
        ("sum", Form({monomial: sign}, ONE.top)), exponent
    )


def _rational_power(value: Rational, exponent: Rational) -> Form:
    """A rational number to a rational power; odd roots of negative numbers are negative."""
    if value == 1:
        return ONE
    if isinstance(exponent, int):
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if bits * abs(exponent) <= MAX_BITS:
            return constant(Fraction(value) ** exponent)
    form = ONE
    if value < 0:
        if exponent.denominator % 2:
            form = constant(-1 if exponent.numerator % 2 else 1)
        elif exponent.denominator == 2:
            form = atom(I_ATOM, exponent.numerator % 4)
        else:
            form = atom(("sum", constant(-1)), exponent)
        value = -value
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        for prime, times in factorize(number):
            form = form * atom(("prime", prime), sign * times * exponent)
    return form


def _symbolic_power(base: Form, exponent: Form) -> Form:
    """A power whose exponent holds variables, roots or constants."""
    value = rational(base)
    if value is not None and value < 0:
        sign_form = atom(("sum", constant(-1)), exponent)
        return sign_form if value == -1 else sign_form * _symbolic_power(constant(-value), exponent)
    if value is not None and value > 0:
        form = ONE
        for number, sign in ((value.numerator, 1), (value.denominator, -1)):
            for prime, times in factorize(number):
                form = form * atom(("prime", prime), constant(sign * times) * exponent)
        return form
    if len(base.top) == 1 and base.bottom == ONE.top:
        ((monomial, coefficient),) = base.top.items()
        if coefficient > 0:
            # A variable exponent stands for a whole number: (2xy)^n is 2^n x^n y^n.
            scaled = {inner: as_form(e) * exponent for inner, e in monomial}
            return normal(1, scaled) * power(constant(coefficient), exponent)
    return atom(("sum", base), exponent)
