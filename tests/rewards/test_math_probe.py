"""Numbers at points: what differs is seen, what is equal agrees, what is huge is left alone."""

import threading

import pytest
from rlgym_llm_rewards.math.algebra import effort
from rlgym_llm_rewards.math.algebra.probe import DIGITS, Probe, probe, real_value
from rlgym_llm_rewards.math.parsing.parse import parse


@pytest.fixture(autouse=True)
def _budget():
    effort.begin()


@pytest.mark.parametrize(
    ("one", "other", "seen"),
    [
        ("(x+1)^2", "x^2+2x+1", "equal"),
        (r"\sin^2x+\cos^2x", "1", "equal"),
        (r"\sqrt{xy}", r"\sqrt x\sqrt y", "equal"),
        (r"\ln(x^2)", r"2\ln x", "equal"),
        (r"\arctan x+\arctan\frac1x", r"\frac\pi2", "different"),  # not for negative x
        (r"\arctan 1+\arctan 2+\arctan 3", r"\pi", "equal"),
        (r"\cos\frac{2\pi}{7}+\cos\frac{4\pi}{7}+\cos\frac{6\pi}{7}", r"-\frac12", "equal"),
        (r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}", "1", "equal"),
        (r"\binom{n}{k}", r"\frac{n!}{k!(n-k)!}", "equal"),
        (r"\frac{n!}{(n-1)!}", "n", "equal"),
        ("e^{i x}", r"\cos x+i\sin x", "equal"),
        ("1011_2", "11", "equal"),
        (r"|x|", r"\sqrt{x^2}", "equal"),
        (r"\max(x,y)", r"\frac{x+y+|x-y|}{2}", "equal"),
        (r"\log_2 x", r"\frac{\ln x}{\ln 2}", "equal"),
        (r"\sqrt[3]{-x}", r"-\sqrt[3]{x}", "equal"),
        (r"\sqrt{x^2}", "x", "different"),
        ("x", "y", "different"),
        ("x^2", "x^{2.0001}", "different"),
        (r"\pi", "3.14159265358979323846264338327950288", "different"),
        ("x", "x+10^{-30}", "different"),
        ("1", "1+10^{-40}", "different"),
        ("10^{30}x", "10^{30}x+1", "different"),
        (r"\sin x", r"\sin(x+10^{-20})", "different"),
        (r"\lfloor x\rfloor", "x", "different"),
        ("f(x)", "f(x)", "unknown"),
        (r"\sum_{k=1}^n k", r"\frac{n(n+1)}{2}", "unknown"),
        (r"\frac{1}{x-x}", "x", "unknown"),
        (r"\sqrt{-1-x^2}", "x", "unknown"),  # nowhere real
        (r"\infty", "1", "unknown"),
        ("9^{9^{9^9}}", "9^{9^{9^8}}", "too_large"),
        ("(10^{10})!", "1", "too_large"),
        ("e^{e^{e^{e^e}}}", "1", "too_large"),
        (r"\binom{10^9}{5\cdot10^8}", "1", "too_large"),
    ],
)
def test_what_the_points_say(one, other, seen):
    for left, right in ((one, other), (other, one)):
        assert probe(parse(left), parse(right)).value == seen


@pytest.mark.parametrize(
    ("text", "value"),
    [(r"\frac34", 0.75), ("-2^2", -4), (r"\sqrt[3]{-8}", -2), ("1011_2", 11), (r"50\%", 0.5)],
)
def test_real_value(text, value):
    assert real_value(parse(text)) == value


@pytest.mark.parametrize("text", [r"\sqrt{-1}", "i", r"\frac10", "x", r"\infty", "9^{9^{9^9}}"])
def test_no_real_value(text):
    assert real_value(parse(text)) is None


def test_fifty_digits():
    import mpmath

    with mpmath.workdps(DIGITS + 5):
        assert abs(real_value(parse(r"\pi")) - mpmath.pi) < mpmath.mpf(10) ** (2 - DIGITS)
    assert mpmath.mp.dps == 15  # the arithmetic of others is left as it was


def test_threads_do_not_share_their_precision():
    long = "1." + "0" * 70 + "1"
    cases = [(parse("x"), parse(f"{long}x")), (parse(r"\sin 2x"), parse(r"2\sin x\cos x"))]
    seen = []

    def work():
        for _ in range(50):
            effort.begin()
            seen.append(tuple(probe(*case) for case in cases))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(Probe.DIFFERENT, Probe.EQUAL)] * 400
