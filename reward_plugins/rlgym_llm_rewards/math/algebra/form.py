r"""The exact normal form of a value: a quotient of sums of monomials over the rationals.

A monomial is a product of atoms to powers: variables, primes under roots (sqrt(8) is 2 * 2^(1/2)),
pi, e, i, functions of forms, and sums under roots. Two forms are equal where the cross product of
their quotients vanishes; no tolerance is involved. What would grow too large stays an atom (2 to
the 1,000,000th is the prime 2 with that exponent) or raises `TooLargeError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from rlgym_llm_rewards.math.algebra.effort import spend

__all__ = [
    "EMPTY",
    "I_ATOM",
    "MAX_BITS",
    "MAX_EXPANDED",
    "ONE",
    "ZERO",
    "Atom",
    "Exponent",
    "Form",
    "Monomial",
    "Rational",
    "Terms",
    "TooLargeError",
    "UndefinedError",
    "as_form",
    "atom",
    "constant",
    "factorize",
    "is_positive",
    "lowest",
    "magnitude",
    "normal",
    "rational",
    "repeated",
    "total",
]

MAX_TERMS = 300
MAX_BITS = 20_000
_MAX_PRODUCTS = 20_000
_TRIAL_LIMIT = 2_000
MAX_EXPANDED = 12
"""Largest whole power of a sum that is multiplied out."""

Rational: TypeAlias = int | Fraction
Atom: TypeAlias = tuple[Any, ...]
Exponent: TypeAlias = "Rational | Form"
Monomial: TypeAlias = frozenset[tuple[Atom, Exponent]]
Terms: TypeAlias = dict[Monomial, Rational]

EMPTY: Monomial = frozenset()
I_ATOM: Atom = ("const", "i")


class TooLargeError(ValueError):
    """The form would have too many terms or digits."""


class UndefinedError(ValueError):
    """The value does not exist: a division by zero, the logarithm of zero."""


class Form:
    """One value; immutable, hashable, and equal to forms of the very same shape.

    ``==`` compares shape; `equals` decides equality of the values.

    >>> x = atom(("sym", "x"))
    >>> ((x + ONE) * (x - ONE)).equals(x * x - ONE)
    True
    """

    __slots__ = ("_hash", "bottom", "top")

    def __init__(self, top: Terms, bottom: Terms) -> None:
        if len(top) > MAX_TERMS or len(bottom) > MAX_TERMS:
            raise TooLargeError("a sum of that many terms")
        self.top = top
        self.bottom = bottom
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((frozenset(self.top.items()), frozenset(self.bottom.items())))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Form)
            and hash(self) == hash(other)
            and (self.top == other.top and self.bottom == other.bottom)
        )

    def __add__(self, other: Form) -> Form:
        if self.bottom == other.bottom:
            return Form(_sum(self.top, other.top), self.bottom)
        return _quotient(
            _times(self.top, other.bottom) + _times(other.top, self.bottom),
            _times(self.bottom, other.bottom),
        )

    def __neg__(self) -> Form:
        return Form({monomial: -value for monomial, value in self.top.items()}, self.bottom)

    def __sub__(self, other: Form) -> Form:
        return self + -other

    def __mul__(self, other: Form) -> Form:
        return _quotient(_times(self.top, other.top), _times(self.bottom, other.bottom))

    def __truediv__(self, other: Form) -> Form:
        if not other.top:
            raise UndefinedError("a division by zero")
        return _quotient(_times(self.top, other.bottom), _times(self.bottom, other.top))

    def equals(self, other: Form) -> bool:
        """Whether both have the same value, as far as exact rewriting tells."""
        return not self.difference(other)

    def difference(self, other: Form) -> Terms:
        """The terms of the cross product; empty where the values are equal."""
        if self.bottom == other.bottom:
            return _cleared(_sum(self.top, (-other).top))
        # Both products are taken over one denominator, which the roots in them may have left.
        return _cleared((_times(self.top, other.bottom) - _times(other.top, self.bottom)).top)


def rational(form: Form) -> Rational | None:
    """The value of a form that is a rational number, else None."""
    if form.bottom != ONE.top or len(form.top) > 1:
        return None
    return form.top.get(EMPTY) if form.top else 0


def constant(value: Rational) -> Form:
    """A rational number as a form."""
    value = lowest(value)
    return Form({EMPTY: value} if value else {}, ONE.top)


def atom(of: Atom, exponent: Exponent = 1) -> Form:
    """An atom to a power as a form."""
    return normal(1, {of: exponent})


@lru_cache(maxsize=2048)
def factorize(value: int) -> tuple[tuple[int, int], ...]:
    """Prime factors of a positive number with their powers; a large rest counts as prime.

    >>> factorize(360)
    ((2, 3), (3, 2), (5, 1))
    """
    factors = []
    divisor = 2
    while divisor * divisor <= value and divisor < _TRIAL_LIMIT:
        power = 0
        while value % divisor == 0:
            value //= divisor
            power += 1
        if power:
            factors.append((divisor, power))
        divisor += 1 if divisor == 2 else 2
    if value > 1:
        factors.append((value, 1))
    return tuple(factors)


# -- sums ----------------------------------------------------------------------------------------


def is_positive(base: Atom) -> bool:
    """Whether an atom is a positive number whatever the variables are."""
    return base[0] == "prime" or base in (("const", "pi"), ("const", "e"))


def magnitude(value: Rational) -> Rational:
    """The number without its sign; ``abs`` of both types has no type of its own."""
    return value if value >= 0 else -value


def lowest(value: Rational) -> Rational:
    """The same number, as int where it is whole."""
    return value.numerator if value.denominator == 1 else value


def _sum(left: Terms, right: Terms) -> Terms:
    terms = dict(left)
    for monomial, value in right.items():
        total = lowest(terms.get(monomial, 0) + value)
        if total:
            terms[monomial] = total
        else:
            terms.pop(monomial, None)
    return terms


def _times(left: Terms, right: Terms) -> Form:
    if len(left) * len(right) > _MAX_PRODUCTS:
        raise TooLargeError("a product of that many terms")
    if right == ONE.top:
        return Form(left, right)
    if left == ONE.top:
        return Form(right, left)
    spend(len(left) * len(right))
    terms: Terms = {}
    rest: list[Form] = []
    for one, a in left.items():
        for other, b in right.items():
            value = a * b
            if value.numerator.bit_length() > 2 * MAX_BITS:
                raise TooLargeError("a number of that many digits")
            if (not one or not other) and not _has_huge_power(one or other):
                terms = _sum(terms, {one or other: value})
                continue
            product = normal(value, _merged(one, other))
            if product.bottom == ONE.top:
                terms = _sum(terms, product.top)
            else:
                rest.append(product)
    total = Form(terms, ONE.top)
    for form in rest:
        total = total + form
    return total


def _cleared(terms: Terms) -> Terms:
    """The terms times the sines that they divide by: only then sin^2 becomes 1 - cos^2."""
    lowest_powers: dict[Atom, int] = {}
    for monomial in terms:
        for base, exponent in monomial:
            if base[:2] == ("call", "sin") and isinstance(exponent, int) and exponent < 0:
                lowest_powers[base] = max(lowest_powers.get(base, 0), -exponent)
    return _times(terms, normal(1, lowest_powers).top).top if lowest_powers else terms


def _has_huge_power(monomial: Monomial) -> bool:
    """Whether a prime stands with a whole exponent: one too large for the coefficient."""
    return any(base[0] == "prime" and isinstance(e, int) for base, e in monomial)


def _merged(one: Monomial, other: Monomial) -> dict[Atom, Exponent]:
    exponents: dict[Atom, Exponent] = dict(one)
    for base, exponent in other:
        exponents[base] = _plus(exponents[base], exponent) if base in exponents else exponent
    return exponents


def _plus(one: Exponent, other: Exponent) -> Exponent:
    if isinstance(one, Form) or isinstance(other, Form):
        total = as_form(one) + as_form(other)
        value = rational(total)
        return total if value is None else value
    return lowest(one + other)


def as_form(value: Exponent) -> Form:
    """An exponent as a form."""
    return value if isinstance(value, Form) else constant(value)


def _quotient(top: Form, bottom: Form) -> Form:
    """The quotient of two forms; a denominator of one term joins the numerator."""
    if top.bottom != ONE.top or bottom.bottom != ONE.top:
        new_top, new_bottom = _times(top.top, bottom.bottom), _times(top.bottom, bottom.top)
        if new_top.bottom != ONE.top or new_bottom.bottom != ONE.top:
            raise TooLargeError("roots within roots")
        top, bottom = new_top, new_bottom
    if not bottom.top:
        raise UndefinedError("a division by zero")
    if len(bottom.top) == 1:
        ((monomial, value),) = bottom.top.items()
        if not monomial and not any(map(_has_huge_power, top.top)):
            scaled = {m: lowest(Fraction(v) / value) for m, v in top.top.items()}
            return Form(scaled, ONE.top)
        inverse = normal(1 / Fraction(value), {base: _negative(e) for base, e in monomial})
        if inverse.bottom == ONE.top:
            return _times(top.top, inverse.top)
    return Form(top.top, bottom.top)


def _negative(exponent: Exponent) -> Exponent:
    return -exponent


# -- monomials -----------------------------------------------------------------------------------


def normal(value: Rational, exponents: Mapping[Atom, Exponent]) -> Form:
    """A product in normal form: roots below one, powers of i gone, powers of sums expanded."""
    kept: dict[Atom, Exponent] = {}
    sums: list[tuple[Form, int]] = []
    for base, exponent in exponents.items():
        if exponent == 0:
            continue
        if base == I_ATOM and isinstance(exponent, int):
            value = value if exponent % 4 in (0, 1) else -value
            exponent %= 2
        elif base[0] == "prime":
            value, exponent = _extract(value, base[1], exponent)
        elif base == _SIGN and isinstance(exponent, Form):
            value, exponent = _turned(value, exponent)
        elif base[0] == "sum" and not isinstance(exponent, Form) and magnitude(exponent) >= 1:
            power = int(exponent // 1)
            if abs(power) <= MAX_EXPANDED:
                sums.append((base[1], power))
                exponent = lowest(exponent - power)
        elif base[0] == "call" and base[1] == "sin" and isinstance(exponent, int) and exponent > 1:
            # sin^2 = 1 - cos^2: one angle has one form.
            cosine = atom(("call", "cos", base[2]))
            sums.append((ONE - cosine * cosine, exponent // 2))
            exponent %= 2
        if exponent != 0:
            kept[base] = exponent
    form = Form({frozenset(kept.items()): lowest(value)} if value else {}, ONE.top)
    for base_form, times in sums:
        whole_power = repeated(base_form, abs(times))
        form = form * whole_power if times > 0 else form / whole_power
    return form


def _turned(value: Rational, exponent: Form) -> tuple[Rational, Exponent]:
    """Powers of -1 by variables stand for whole ones: even parts of the exponent fall out."""
    if exponent.bottom != ONE.top:
        return value, exponent
    rest: Terms = {}
    for monomial, times in exponent.top.items():
        if times.denominator != 1:
            rest[monomial] = times
        elif times % 2:
            if monomial:
                rest[monomial] = 1
            else:
                value = -value
    return value, Form(rest, ONE.top) if rest else 0


def _extract(value: Rational, prime: int, exponent: Exponent) -> tuple[Rational, Exponent]:
    """Moves whole powers of a prime into the coefficient, or out of it where they are huge."""
    if isinstance(exponent, Form):
        whole: Rational = exponent.top.get(EMPTY, 0) if exponent.bottom == ONE.top else 0
        shift = whole // 1
        if not shift or abs(shift) * prime.bit_length() > MAX_BITS:
            return value, exponent
        return value * Fraction(prime) ** int(shift), exponent - constant(shift)
    if magnitude(exponent) * prime.bit_length() <= MAX_BITS:
        shift = exponent // 1
        return value * Fraction(prime) ** int(shift), lowest(exponent - shift)
    top, bottom = value.numerator, value.denominator
    while top and top % prime == 0:
        top, exponent = top // prime, exponent + 1
    while bottom % prime == 0:
        bottom, exponent = bottom // prime, exponent - 1
    return Fraction(top, bottom), exponent


def repeated(form: Form, times: int) -> Form:
    """A whole power, multiplied out."""
    result = ONE
    for _ in range(times):
        result = result * form
    return result


ONE = Form.__new__(Form)
ONE.top = ONE.bottom = {EMPTY: 1}
ONE._hash = None
ZERO = Form({}, ONE.top)
_SIGN: Atom = ("sum", Form({EMPTY: -1}, ONE.top))


def total(forms: Iterable[Form]) -> Form:
    """The sum of the forms."""
    result = ZERO
    for form in forms:
        result = result + form
    return result
