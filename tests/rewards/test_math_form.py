"""Exact forms: the arithmetic of a field, rewriting by hand-known identities, and bounds."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_rewards.math.algebra import effort
from rlgym_llm_rewards.math.algebra.canonical import canonical, is_exact
from rlgym_llm_rewards.math.algebra.effort import EffortError
from rlgym_llm_rewards.math.algebra.form import (
    MAX_BITS,
    ONE,
    ZERO,
    TooLargeError,
    UndefinedError,
    atom,
    constant,
    factorize,
    rational,
    total,
)
from rlgym_llm_rewards.math.algebra.powers import power
from rlgym_llm_rewards.math.parsing.parse import parse
from rlgym_llm_rewards.math.parsing.tokens import UnreadableError

X, Y = atom(("sym", "x")), atom(("sym", "y"))
HALF = Fraction(1, 2)


@pytest.fixture(autouse=True)
def _budget():
    effort.begin()


def form(text):
    return canonical(parse(text))


# -- arithmetic ----------------------------------------------------------------------------------

leaves = st.one_of(
    st.fractions(-9, 9, max_denominator=6).map(constant),
    st.sampled_from([X, Y, atom(("const", "pi")), power(constant(2), HALF), form("i")]),
)
forms = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a / b if b.top else a, inner, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(forms, forms, forms)
def test_field(a, b, c):
    effort.begin()
    assert (a + b).equals(b + a)
    assert (a * b).equals(b * a)
    assert ((a + b) + c).equals(a + (b + c))
    assert ((a * b) * c).equals(a * (b * c))
    assert (a * (b + c)).equals(a * b + a * c)
    assert (a - a).equals(ZERO)
    assert (a + ZERO).equals(a)
    assert (a * ONE).equals(a)
    assert not a.equals(a + ONE)
    if b.top:
        assert (a / b * b).equals(a)
    assert power(a + b, 2).equals(a * a + constant(2) * a * b + b * b)
    assert a.equals(b) == b.equals(a)


@given(forms)
def test_equal_shapes_hash_alike(a):
    effort.begin()
    assert hash(a + ZERO) == hash(a)
    assert a + ZERO == a
    assert a != "a"


@given(st.integers(1, 10**9))
def test_factorize(value):
    factors = factorize(value)
    assert math.prod(prime**times for prime, times in factors) == value
    assert [p for p, _ in factors] == sorted({p for p, _ in factors})


def test_rational():
    assert rational(constant(Fraction(6, 3))) == 2
    assert rational(ZERO) == 0
    assert rational(X) is None
    assert rational(X - X + ONE) == 1
    assert rational(ONE / (ONE + X)) is None
    assert rational(total([ONE, constant(HALF), constant(-HALF)])) == 1


@pytest.mark.parametrize(
    ("base", "exponent", "value"),
    [
        (8, Fraction(1, 3), 2),
        (8, Fraction(2, 3), 4),
        (-8, Fraction(1, 3), -2),
        (4, -HALF, HALF),
        (Fraction(9, 4), HALF, Fraction(3, 2)),
        (2, 10, 1024),
        (5, 0, 1),
        (0, 3, 0),
    ],
)
def test_powers_of_numbers(base, exponent, value):
    assert rational(power(constant(base), exponent)) == value


# -- rewriting -----------------------------------------------------------------------------------

EQUAL = r"""
x^2-y^2 ≡ (x-y)(x+y)
\frac{1}{x}-\frac{1}{x+1} ≡ \frac{1}{x^2+x}
\frac{\frac1x}{\frac1y} ≡ \frac{y}{x}
\sqrt{8} ≡ 2\sqrt2
\sqrt{\frac{2}{3}} ≡ \frac{\sqrt6}{3}
\frac{1}{\sqrt[3]{2}} ≡ \frac{\sqrt[3]{4}}{2}
\sqrt2\sqrt3 ≡ \sqrt6
\sqrt{2}\sqrt[3]{2} ≡ 2^{5/6}
\frac{1}{\sqrt3-\sqrt2} ≡ \sqrt3+\sqrt2
\sqrt{5+2\sqrt6} ≡ \sqrt2+\sqrt3
\sqrt{x^2} ≡ |x|
(\sqrt{x})^2 ≡ x
\sqrt{4x} ≡ 2\sqrt x
\sqrt{-9} ≡ 3i
(2+3i)(2-3i) ≡ 13
\frac{1+i}{1-i} ≡ i
i^{7} ≡ -i
e^{x+1} ≡ e\cdot e^x
e^{i\pi/3} ≡ \frac12+\frac{\sqrt3}{2}i
2^{n+3} ≡ 8\cdot2^n
4^n ≡ 2^{2n}
6^n ≡ 2^n3^n
\frac{2^n}{2^{n-1}} ≡ 2
2^{1000000}\cdot 2 ≡ 2^{1000001}
9^{9^9} ≡ 3^{2\cdot9^9}
\ln 12 ≡ 2\ln2+\ln3
\log_8 4 ≡ \frac23
\ln\sqrt2 ≡ \frac{\ln 2}{2}
\ln e^3 ≡ 3
\lg 1000 ≡ 3
5! ≡ 120
\frac{n!}{(n-2)!} ≡ n(n-1)
(n+1)! ≡ (n+1)n!
\binom{10}{3} ≡ 120
\binom{n}{3} ≡ \frac{n(n-1)(n-2)}{6}
\sin\frac{\pi}{3} ≡ \frac{\sqrt3}{2}
\cos\pi ≡ -1
\cos\frac{\pi}{12} ≡ \frac{\sqrt6+\sqrt2}{4}
\tan\frac{3\pi}{4} ≡ -1
\sin\frac{7\pi}{6} ≡ -\frac12
\cos\frac{\pi}{5} ≡ \frac{1+\sqrt5}{4}
\cos\frac{\pi}{5}\cos\frac{2\pi}{5} ≡ \frac14
\sin(-x) ≡ -\sin x
\cos(-x) ≡ \cos x
\sin(x+\pi) ≡ -\sin x
\sin^4 x+2\sin^2x\cos^2x+\cos^4x ≡ 1
\tan^2x+1 ≡ \sec^2x
\sin3x ≡ 3\sin x-4\sin^3x
\cos4x ≡ 8\cos^4x-8\cos^2x+1
\cot x ≡ \frac{1}{\tan x}
\arcsin\frac12 ≡ \frac{\pi}{6}
\arccos(-1) ≡ \pi
\arctan\sqrt3 ≡ \frac{\pi}{3}
\tanh x ≡ \frac{e^{2x}-1}{e^{2x}+1}
|-3x| ≡ 3|x|
|x-y| ≡ |y-x|
\lfloor-2.5\rfloor ≡ -3
\lceil-2.5\rceil ≡ -2
(-7)\bmod 3 ≡ 2
\gcd(12, 18) ≡ 6
\operatorname{lcm}(4, 6) ≡ 12
\max(2, 3, 1) ≡ 3
\max(x, y) ≡ \max(y, x)
25\% ≡ \frac14
101_2 ≡ 5_{10}
"""


def _pairs(table):
    return [tuple(line.split(" ≡ ")) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("one", "other"), _pairs(EQUAL))
def test_equal(one, other):
    assert form(one).equals(form(other))
    assert form(other).equals(form(one))
    assert not form(other).equals(form(one) + ONE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\sqrt{x^2}", "x"),
        (r"\sqrt{x}", r"\sqrt[3]{x}"),
        (r"\sqrt{x+y}", r"\sqrt x+\sqrt y"),
        ("(x+y)^2", "x^2+y^2"),
        ("2^{n+1}", "2^n+1"),
        (r"\ln(x+y)", r"\ln x+\ln y"),
        (r"\sin^2 x", r"\sin x^2"),
        (r"\sin(x+y)", r"\sin x+\sin y"),
        ("2^{1000000}", "2^{1000001}"),
        ("2^{1000000}+1", "2^{1000000}"),
        (r"\max(x, y)", r"\min(x, y)"),
        ("f(x)", "f(y)"),
        ("x_1", "x_2"),
        ("(n+1)!", "n!+1"),
        (r"\log_2 x", r"\log_3 x"),
        ("|x|", "x"),
    ],
)
def test_not_equal(one, other):
    assert not form(one).equals(form(other))


@pytest.mark.parametrize(
    "text",
    [
        *("1/0", r"\frac{1}{x-x}", "0^0", "0^{-1}", r"\ln 0", r"\frac{x}{\sqrt2\sqrt2-2}"),
        *(r"5 \bmod 0", r"\tan\frac{\pi}{2}", r"\gcd(1/2, 3)", "(x-x)^{-2}", r"\cot 0"),
    ],
)  # fmt: skip
def test_undefined(text):
    with pytest.raises(UndefinedError):
        form(text)


@pytest.mark.parametrize("text", ["(1,2)", r"\infty", "x=5", r"\{1\}", "1:2:3", r"\mathbb{R}"])
def test_no_number(text):
    with pytest.raises(UnreadableError):
        form(text)


# -- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "(a+b+c+d+x+y)^{12}",
        "(a+b+c+d)^{12}(x+y+z+w)^{12}",
        "((a+b+c)^{12}+d)^{12}",
    ],
    ids=len,
)
def test_too_large(text):
    with pytest.raises((TooLargeError, EffortError)):
        form(text)


@pytest.mark.parametrize(
    "text",
    [
        *("9^{9^{9^9}}", "(10^{10})!", "10^{10^{10}}", r"\binom{10^9}{5\cdot10^8}", ),
        *("(x+1)^{10000}", "1.5^{10^{12}}", "2^{2^{100}}", "(((9!)!)!)!", r"\sqrt{10^{99}!}"),
    ],
)  # fmt: skip
def test_what_is_huge_stays_an_atom(text):
    huge = form(text)
    assert huge.equals(form(text))
    assert not huge.equals(huge + ONE)
    bits = [value.numerator.bit_length() for value in huge.top.values()]
    assert max(bits) <= 2 * MAX_BITS


def test_a_budget_of_work():
    effort.spend(effort.MAX_EFFORT)
    with pytest.raises(EffortError):
        effort.spend(1)
    effort.begin()
    effort.spend(1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"x+\sqrt2\pi-i", True),
        ("2^{1/3}-e", True),
        (r"\sin x", False),
        ("2^n", False),
        (r"\sqrt{1+\sqrt2}", False),
    ],
)
def test_which_terms_are_independent(text, expected):
    assert is_exact(form(text).top) is expected
