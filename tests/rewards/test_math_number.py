from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.math.number import parse_number
from rlgym_llm_rewards.math.parsing.tokens import MAX_CHARS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72),
        ("042", 42),
        ("-5", -5),
        ("−5", -5),
        ("+5", 5),
        ("72.", 72),
        ("72.0", 72),
        (".5", Fraction(1, 2)),
        ("0.25", Fraction(1, 4)),
        ("1,234", 1234),
        ("1,234,567.89", Fraction(123456789, 100)),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        (r"15,\!000", 15000),
        ("1 234", 1234),
        ("1\u202f234", 1234),
        ("3/4", Fraction(3, 4)),
        ("-6 / 4", Fraction(-3, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{1,000}{3}", Fraction(-1000, 3)),
        (r"\frac34", Fraction(3, 4)),
        ("$18", 18),
        (r"\$18.50", Fraction(37, 2)),
        ("-$5", -5),
        ("$-5", -5),
        ("€5", 5),
        ("$18$", 18),
        (r"\(18\)", 18),
        ("**18**", 18),
        ("**18.**", 18),
        ("  18\t", 18),
        ("25%", 25),
        (r"$25\%$.", 25),
    ],
)
def test_reads(text, value):
    number = parse_number(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-", "$", "%", ".", "4 2", "1, 234", "12,34", "1,2345", "1.2.3", "1/2/3", "--5"),
        *("1/0", r"\frac{1}{0}", "5 or 6", "x", "1e5", "1_000", "0x10", "inf", "nan", "٧٢", "５"),
        *("-$-5", "1,234,56", "9" * 1001, "0" * (MAX_CHARS + 1), "1\n2"),
    ],
    ids=lambda text: repr(text[:10]),
)
def test_is_no_number(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("25%", "0.25", True),
        ("25%", "1/4", True),
        ("25%", "25", True),
        ("0.25", "25", False),
        ("25%", "0.25%", False),
        ("25%", "2500", False),
        ("$18", "18", True),
        ("$18", "€18", False),
        ("$18", r"\$18", True),
        ("0.1", "1/10", True),
        ("0.3333", "1/3", False),
        ("-0", "0", True),
    ],
)
def test_sameness(left, right, same):
    one, other = parse_number(left), parse_number(right)
    assert one is not None
    assert other is not None
    assert one.same_as(other) is same
    assert other.same_as(one) is same


@given(st.integers(-(10**30), 10**30))
def test_integers_round_trip(value):
    for text in (str(value), f"{value:,}", f"${value:,}".replace("$-", "-$"), f"{value}.00"):
        number = parse_number(text)
        assert number is not None
        assert number.value == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_exact(value):
    number = parse_number(f"{value:f}")
    assert number is not None
    assert number.value == Fraction(value)


@given(st.fractions())
def test_fractions_are_exact(value):
    for text in (
        f"{value.numerator}/{value.denominator}",
        rf"\frac{{{value.numerator}}}{{{value.denominator}}}",
    ):
        number = parse_number(text)
        assert number is not None
        assert number.value == value


@given(st.text(alphabet="0123456789,.$%/-−+{} \\fracdl€\n*x", max_size=60) | st.text())
def test_never_raises_and_reads_its_own_value_again(text):
    number = parse_number(text)
    if number is not None:
        again = parse_number(str(number.value))
        assert again is not None
        assert again.value == number.value
