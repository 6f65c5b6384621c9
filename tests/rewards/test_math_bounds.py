r"""No answer is too large to judge: towers, sums, nestings and digits without end.

How long a verdict takes is measured by the benchmark; here each must come, and be no reward.
"""

import sys

import pytest
from rlgym_llm_rewards.math import verify

POWERS = r"""
9^{9^{9^9}}
9**9**9**9
10^{10^{10^{10}}}
x^{x^{x^x}}
x^{x^{x^{x^{x^x}}}}
e^{e^{e^{e}}}
e^{e^{e^{e^{e^e}}}}
(x+1)^{10000}
((x+1)^{10000})^{10000}
(a+b+c+d+x+y+z)^{12}
((a+b)^{12}+(c+d)^{12})^{12}
(2+\sqrt3)^{1000000}
((2+\sqrt{3}+\sqrt5+\sqrt7)^{12})^{12}
(1/3)^{10^9}
0.5^{10^{10}}
(1+10^{-9})^{10^{9}}
1e999999999
1e-999999999
2^{1/10^9}
\sqrt[10^9]{2}
\sqrt{10^{5000}+1}
(7^{999999999}) \bmod 13
2^{2^{2^{20}}} \bmod 5
10^{6000} \bmod 7^{5000}
\gcd(9^{9^9}, 6)
\gcd(10^{5000}+2, 10^{4999}-2)
\operatorname{lcm}(2^{5000}, 3^{5000}, 5^{5000})
\lfloor 10^{5000}/7 \rfloor
\lfloor \pi^{1000} \rfloor
(10^{10})!
99999999!
((9!)!)!
(((((9!)!)!)!)!)!
x!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!
\frac{(10^{10})!}{(10^{10}-1)!}
\binom{10^9}{5}
\binom{10^9}{5\cdot 10^8}
\binom{n}{10^9}
\Gamma(10^{12})
\sin(10^{100})
\sin(10^{5000})
\sin(8\sin(8\sin(8\sin x)))
\sin(7(x+y+z+w))^{12}
\cos^{500} x
\sin^{1000} x
\sinh(10^9)
\arcsin(10^{50})
\log_{10^{1000}} 10^{10^6}
\ln(\ln(\ln(10^{1000})))
\sum_{k=1}^{10^{100}} k!
\prod_{k=1}^{10^9} k
\int_0^{10^{100}} x^x dx
1 \pm 2 \pm 3 \pm 4 \pm 5 \pm 6
i^{10^{100}+1}
e^{i 10^{30}}
"""

REPEATED = {
    "square roots": r"\sqrt{" * 30 + "2" + "}" * 30,
    "many square roots": r"\sqrt{" * 500 + "2" + "}" * 500,
    "fractions": r"\frac{1}{1+" * 30 + "x" + "}" * 30,
    "many fractions": r"\frac1{" * 600 + "2" + "}" * 600,
    "a tower": "2^{" * 30 + "2" + "}" * 30,
    "brackets": "(" * 1500 + "x" + ")" * 1500,
    "bars": "|" * 300 + "x" + "|" * 300,
    "signs": "-" * 90 + "5",
    "many signs": "-" * 3001 + "5",
    "primes": "x" + "'" * 200,
    "percents": "x" + "%" * 200,
    "factorials": "5" + "!" * 60,
    "sums of powers": "+".join(f"x^{{{i}}}" for i in range(280)),
    "sums of variables": "+".join(f"x_{{{i}}}" for i in range(280)),
    "sums of roots": "+".join(rf"\sqrt{{{i}}}" for i in range(2, 250)),
    "2,000 terms": "+".join(["1"] * 2000),
    "partial fractions": "+".join(rf"\frac{{1}}{{x+{i}}}" for i in range(60)),
    "partial fractions of many": "+".join(rf"\frac{{1}}{{x_{{{i}}}+1}}" for i in range(60)),
    "products of sums": "(x+y)" * 200,
    "products of other sums": "".join(f"(x_{{{i}}}+y)" for i in range(100)),
    "products of roots": r"\sqrt{x}" * 200,
    "a matrix": r"\begin{pmatrix}"
    + r"\\".join("&".join(str(i * j) for i in range(25)) for j in range(25))
    + r"\end{pmatrix}",
    "a set": r"\{" + ",".join(map(str, range(700))) + r"\}",
    "a list": ", ".join(map(str, range(600))),
    "a list of roots": ",".join(rf"\sqrt{{{i}}}" for i in range(200)),
    "a union": r"\cup".join(f"({i},{i + 0.5})" for i in range(120)),
    "a chain": "<".join("abcxyz" * 50),
    "an equation chain": "=".join(f"x_{i}" for i in range(300)),
    "a maximum": r"\max(" + ",".join(map(str, range(900))) + ")",
    "digits": "7" * 900,
    "more digits than read": "7" * 1500,
    "far more digits": "7" * 100_000,
    "decimals": "0." + "7" * 3000,
    "a number": "1" + "0" * 999,
    "root of digits": r"\sqrt{" + "7" * 900 + "}",
    "power of digits": "(" + "7" * 900 + ")^{20}",
    "logarithm of digits": r"\ln(" + "7" * 900 + ")",
    "fraction of digits": rf"\frac{{1}}{{{'3' * 900}}}+\frac{{1}}{{{'7' * 901}}}",
    "binary digits": "1" * 900 + "_2",
    "arabic digits": "\u0661" * 900,
    "a large base": "7_{" + "9" * 500 + "}",
    "spaces": "1" + " " * 100_000 + "+x",
    "text": r"\text{" * 500,
    "words": "word " * 800,
}
BOMBS = {line: line for line in POWERS.strip().splitlines()} | REPEATED
UNRELATED = ("1", "7.25", r"\pi x", "(3, 4)", r"x^2 < 8")


@pytest.fixture(autouse=True)
def _small_stack():
    """The parser's depth is bounded by itself, and not by the stack."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=[name[:40] for name in BOMBS])
def test_a_bomb_is_judged(bomb):
    for gold in UNRELATED:
        assert not verify(rf"\boxed{{{bomb}}}", gold).is_correct
        assert not verify(bomb, gold).is_correct
        assert not verify(rf"\boxed{{{gold}}}", bomb).is_correct
    assert verify(rf"\boxed{{{bomb}}}", bomb).status in ("correct", "bad_gold", "limit")
    assert verify(bomb, bomb).status in ("correct", "bad_gold", "limit")
    respelt = bomb.replace("{", "{ ").replace("=", " = ") + " "
    assert verify(rf"\boxed{{{respelt}}}", bomb).status in ("correct", "bad_gold", "limit")
    assert not verify(rf"\boxed{{{bomb} + 1}}", bomb).is_correct


RUNS = [
    *r", ; : . $ \ { } ( ) [ | - + / ^ _ ' ! % = < 1 x 1, 0. * ` & ½ € \, \$ \% \{ \\".split(),
    *r"\text{ \text{a} \left( \frac \sqrt \boxed{ \overline{ 0.\overline{3} p.m. ~".split(),
    *(" ", "\n", "\t", r"\ ", r"\quad ", "1 ", "A ", "and ", "or ", "word "),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", RUNS)
def test_long_runs(piece):
    """50,000 characters: what is quadratic in them would take minutes."""
    run = piece * (50_000 // len(piece))
    for text in (f"1{run}+x", f"{run}1", f"1{run}"):
        assert not verify(rf"\boxed{{{text}}}", "7").is_correct
        assert not verify(f"#### {text}", "7").is_correct
        assert not verify(f"The answer is {text}", "C").is_correct
        assert not verify("7", text).is_correct
        assert not verify(text, "yes, some words").is_correct
