"""What the tokens are, which tree they make, and how that is shown again."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.math.algebra.canonical import canonical
from rlgym_llm_rewards.math.parsing.nodes import Node, from_json, number, symbols, to_json, walk
from rlgym_llm_rewards.math.parsing.parse import parse
from rlgym_llm_rewards.math.parsing.reading import read
from rlgym_llm_rewards.math.parsing.show import show
from rlgym_llm_rewards.math.parsing.tokens import (
    MAX_CHARS,
    MAX_TOKENS,
    LimitError,
    UnreadableError,
    read_number,
    tokenize,
)
from rlgym_llm_rewards.math.policy import Policy

# -- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "comma", "tokens"),
    [
        ("3x", "thousands", ["3", "x"]),
        ("1,234", "thousands", ["1,234"]),
        ("1,234", "list", ["1", ",", "234"]),
        ("1,5", "decimal", ["1,5"]),
        ("1.234,5", "decimal", ["1.234,5"]),
        ("(1,234)", "thousands", ["(", "1", ",", "234", ")"]),
        ("1, 234", "thousands", ["1", ",", "234"]),
        ("1 234", "thousands", ["1 234"]),
        ("12 34", "thousands", ["12", "34"]),
        (r"\left( x \right)", "thousands", ["(", "x", ")"]),
        (r"x\,\;y", "thousands", ["x", "y"]),
        (r"\text{ cm}", "thousands", ["cm"]),
        (r"\text{or}", "thousands", ["or"]),
        (r"\mathrm{5}", "thousands", ["5"]),
        ("a<=b>=c!=d", "thousands", ["a", "<=", "b", ">=", "c", "!=", "d"]),
        ("x**2", "thousands", ["x", "**", "2"]),
        (".5", "thousands", [".5"]),
        ("1e5", "thousands", ["1e5"]),
        ("$x$", "thousands", ["x"]),
        ("", "thousands", []),
    ],
)
def test_tokens(text, comma, tokens):
    assert [token.text for token in tokenize(text, comma)] == [*tokens, ""]


@pytest.mark.parametrize(
    ("text", "comma", "value"),
    [
        ("042", "thousands", (42, None, 0)),
        ("1,234", "thousands", (1234, None, 0)),
        ("1{,}234", "list", (1234, None, 0)),
        ("3.50", "thousands", (Fraction(7, 2), 2, 0)),
        ("3,50", "decimal", (Fraction(7, 2), 2, 0)),
        ("1e-5", "thousands", (1, None, -5)),
        (r"0.\overline{3}", "thousands", (Fraction(1, 3), None, 0)),
        (r"1.2\overline{34}", "thousands", (Fraction(1222, 990), None, 0)),
    ],
)
def test_numbers(text, comma, value):
    assert read_number(text, comma) == value


@pytest.mark.parametrize(
    "text", ["x" * (MAX_CHARS + 1), "x " * (MAX_TOKENS + 1), "9" * 1001, "1e" + "9" * 40], ids=len
)
def test_too_large_a_text(text):
    with pytest.raises(LimitError):
        parse(text)


# -- trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x", "x"),
        ("-x", "-x"),
        ("2x+3", "2*x + 3"),
        ("xy^2", "x*y^2"),
        ("2x^3y", "2*x^3*y"),
        ("a-b-c", "a - b - c"),
        ("a-(b-c)", "a - (b - c)"),
        ("a/b/c", "a/b/c"),
        ("a/(b/c)", "a/(b/c)"),
        ("a/bc", "(a/b)*c"),
        ("-2^2", "-2^2"),
        ("(-2)^2", "(-2)^2"),
        ("2^3^2", "2^(3^2)"),
        ("2^{-x}", "2^(-x)"),
        ("x^10", "x^10"),
        (r"x^\frac12", "x^(1/2)"),
        (r"\frac12", "1/2"),
        (r"\frac 1 2", "1/2"),
        (r"\frac{a+b}{c}", "(a + b)/c"),
        (r"\frac1{x}", "1/x"),
        (r"\frac123", "(1/2)*3"),
        (r"\sqrt2", "sqrt(2)"),
        (r"\sqrt[3]{x}", "root(x, 3)"),
        ("sqrt(2)", "sqrt(2)"),
        ("3 1/4", "13/4"),
        (r"3\frac14", "13/4"),
        (r"-3\frac14", "-13/4"),
        (r"x\frac14", "x*(1/4)"),
        ("1,234.50", "1234.50"),
        ("1.5e3", "1.5*10^3"),
        ("25%", "25%"),
        (r"25\%", "25%"),
        ("5 cm", "5 cm"),
        (r"5\text{ square feet}", "5 ft^2"),
        (r"\$5", "5 $"),
        (r"30^\circ", "30"),
        ("1011_2", "1011_2"),
        ("x_1", "x_1"),
        ("x_{12}y", "x_12*y"),
        ("f(x)", "f(x)"),
        ("f(x,y)", "f(x, y)"),
        ("f'(x)", "f'(x)"),
        ("a(x)", "a*x"),
        (r"\sin x", "sin(x)"),
        (r"\sin 2x", "sin(2*x)"),
        (r"\sin^2 x", "sin(x)^2"),
        (r"\sin^{-1} x", "arcsin(x)"),
        (r"\sin x\cos x", "sin(x)*cos(x)"),
        (r"\log_2 8", "log(8, 2)"),
        (r"\ln(x)+1", "ln(x) + 1"),
        (r"\binom{n}{2}", "binom(n, 2)"),
        ("n!", "factorial(n)"),
        ("|x-1|", "abs(x - 1)"),
        (r"|x||y|", "abs(x)*abs(y)"),
        (r"\lfloor x \rfloor", "floor(x)"),
        (r"7 \bmod 3", "mod(7, 3)"),
        (r"\pi r^2", "pi*r^2"),
        ("2πr", "2*pi*r"),
        ("x²", "x^2"),
        (r"1 \pm 2", "1 ± 2"),
        (r"\pm 2", "±2"),
        ("1, 2", "1, 2"),
        ("1 and 2", "1, 2"),
        (r"1\text{ or }2", "1 or 2"),
        ("(1,2)", "(1, 2)"),
        (r"\{1,2\}", "{1, 2}"),
        (r"\{\}", "empty"),
        ("[1,2]", "[1, 2]"),
        ("[1,2)", "[1, 2)"),
        (r"(-\infty, 2]", "(-oo, 2]"),
        (r"[1,2)\cup(3,4)", "[1, 2) union (3, 4)"),
        (r"\langle 1,2\rangle", "(1, 2)"),
        ("x=5", "x = 5"),
        (r"1<x\le2", "1 < x <= 2"),
        (r"\ne 5", "!= 5"),
        (r"x\in\mathbb{R}", "x in reals"),
        ("3:4", "3:4"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[1, 2; 3, 4]"),
        (r"\begin{array}{cc}1&2\end{array}", "[1, 2]"),
    ],
)
def test_shown(text, shown):
    assert show(parse(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("", "+", "x+", "*x", "x^", "x_", "/2", "()", "(", ")", "(x", "x)", "[1,2", "1]", "{1"),
        *(r"\frac{1}", r"\frac", r"\sqrt", r"\sqrt[3]", r"\foo{x}", r"\left", "x y z w hello"),
        *(r"\begin{pmatrix}1&2\\3\end{pmatrix}", r"\begin{pmatrix}1", r"\begin{foo}1\end{foo}"),
        *(r"\end{pmatrix}", "4 2", "#", "@", "x?", "__import__('os')", "eval(x)", "a.b", '"x"'),
        *(r"\input{x}", r"\write18{x}", "x\0", "\ud800", "é" * 5, "1__2"),
    ],
)
def test_unreadable(text):
    with pytest.raises(UnreadableError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100 + "x" + ")" * 100,
        r"\sqrt{" * 100 + "x" + "}" * 100,
        r"\frac{1}{" * 100 + "x" + "}" * 100,
        "2^{" * 100 + "x" + "}" * 100,
        "2^" * 100 + "x",
        r"\sin" * 100 + "x",
        r"\overline" * 100 + "x",
        "f(" * 100 + "x" + ")" * 100,
        "-" * 200 + "x",
        "[" * 100 + "x" + "]" * 100,
        r"\{" * 100 + "x" + r"\}" * 100,
        "|(" * 60 + "x" + ")|" * 60,
        r"\sqrt" * 100 + "x",
        r"\log_" * 100 + "x",
    ],
    ids=lambda text: text[:9],
)
def test_too_deep(text):
    with pytest.raises((LimitError, UnreadableError)):
        parse(text)


def test_imaginary_unit():
    assert parse("i") == Node("const", ("i",))
    assert parse("j") == Node("sym", ("j",))
    assert parse("j", imaginary="ij") == Node("const", ("i",))


def test_readings_of_a_comma():
    assert [comma for comma, _ in read("3,5", Policy()).trees] == ["thousands", "decimal"]
    assert [comma for comma, _ in read("35", Policy()).trees] == ["thousands"]
    assert show(read("3,5", Policy(decimal_comma="always")).trees[0][1]) == "3.5"
    assert all(c != "decimal" for c, _ in read("3,5", Policy(decimal_comma="never")).trees)
    unread = read("x^", Policy())
    assert (unread.trees, unread.is_limit) == ((), False)
    assert unread.problem
    assert read("(" * 100, Policy()).is_limit


# -- what is made of trees -----------------------------------------------------------------------


numbers = st.fractions(0, 99, max_denominator=20).map(number)
trees = st.recursive(
    numbers | st.sampled_from("xyz").map(lambda name: Node("sym", (name,))),
    lambda inner: st.one_of(
        st.builds(lambda *a: Node("add", a), inner, inner),
        st.builds(lambda *a: Node("mul", a), inner, inner),
        st.builds(lambda a: Node("neg", (a,)), inner),
        st.builds(lambda a, n: Node("pow", (a, number(n))), inner, st.integers(1, 3)),
        st.builds(lambda a, n: Node("div", (a, number(n))), inner, st.integers(1, 9)),
        st.builds(lambda a: Node("call", ("abs", a)), inner),
        st.builds(lambda a: Node("root", (a, number(2))), inner),
    ),
    max_leaves=8,
)


@given(trees)
def test_what_is_shown_reads_as_the_same_value(tree):
    assert canonical(parse(show(tree))).equals(canonical(tree))


@given(trees)
def test_json_there_and_back(tree):
    assert from_json(json.loads(json.dumps(to_json(tree)))) == tree


def test_walk():
    tree = parse(r"\begin{pmatrix}x&y\\1&x+z\end{pmatrix}")
    assert symbols(tree) == {"x", "y", "z"}
    assert sum(node.head == "sym" for node in walk(tree)) == 4
