"""Which values are equal and which are not, judged in both directions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_rewards.math import verify

CASES = r"""
# number
42 ≡ 042
42 ≡ +42
42. ≡ 42
1/2 ≡ \frac{1}{2}
2/4 ≡ \dfrac12
0.5 ≡ \tfrac{1}{2}
.5 ≡ 0.50
-1/2 ≡ \frac{-1}{2}
-1/2 ≡ -\frac{1}{2}
-1/2 ≡ \frac{1}{-2}
3 1/4 ≡ 13/4
3\frac{1}{4} ≡ 3.25
-2\frac12 ≡ -2.5
1,234 ≡ 1234
1{,}234{,}567 ≡ 1234567
1\,234 ≡ 1234
1 234 567 ≡ 1234567
1.5e3 ≡ 1500
6.02\times 10^{23} ≡ 602 \cdot 10^{21}
15\cdot10^2 ≡ 1500
0.\overline{3} ≡ 1/3
0.1\overline{6} ≡ \frac16
٤٢ ≡ 42
−5 ≡ -5
½ ≡ 0.5
1½ ≡ 1.5
10^{20} ≡ 100000000000000000000
5! ≡ 120
\binom{5}{2} ≡ 10
\sqrt{16} ≡ 4
--5 ≡ 5
\lfloor 2.7 \rfloor ≡ 2
\lceil 2.1 \rceil ≡ 3
|-3| ≡ 3
7 \bmod 4 ≡ 3
\gcd(12, 18) ≡ 6
\gcd(12,18) ≡ 6
\mathrm{lcm}(4, 6) ≡ 12
(-7) \bmod 3 ≡ 2
\operatorname{lcm}(12,18) ≡ 36
1/2\% ≡ 5e-3
1,5 ≡ 1.5
1.234,56 ≡ 1234.56
\max(1, 2, 3) ≡ 3
1, 234 ≢ 1234
0.333 ≢ 1/3
0.33333 ≢ 1/3
10^{-401} ≢ 10^{-400}
100000000000000000000 ≢ 100000000000000000001
\frac{1}{2006!} ≢ \frac1{2004!}
10 ≢ 4 10/3
-1.5 ≢ -2\frac12
42 ≢ 4200
42 ≢ 0.42
1.0001 ≢ 1
1e400 ≢ 1e401
9^{9^{9^9}} ≢ 9^{9^{9^8}}
\infty ≢ 5
\infty ≢ -\infty
012 ≢ 120
7! ≢ 5039
(10^{10})! ≢ (10^{10})!+1
# percent
25% ≡ 0.25
25\% ≡ \frac14
25% ≡ 25
-25% ≡ -0.25
25 ≢ 0.25
25% ≢ 2500
25% ≢ 0.25%
25% ≢ -0.25
# unit
10 cm ≡ 10
10\text{ cm} ≡ 10 centimeters
10\,\mathrm{cm}^2 ≡ 10 square centimeters
$18 ≡ 18 dollars
\$18 ≡ 18
30^\circ ≡ 30
30 degrees ≡ 30^{\circ}
5 apples ≡ 5
€5 ≡ 5 euros
30 m ≢ 30 cm
5 m ≢ 5\,m^2
$5 ≢ €5
5 apples ≢ 6 apples
5 m^2 ≡ 5\text{ m}^2
90^o ≡ 90
# symbolic
x+y ≡ y+x
2(x+1) ≡ 2x+2
(x+1)^2 ≡ x^2+2x+1
(x-1)(x+1) ≡ x^2-1
\frac{x^2-1}{x-1} ≡ x+1
\frac{1}{x}+\frac1y ≡ \frac{x+y}{xy}
x \cdot y ≡ yx
x*y ≡ xy
\frac{x}{2} ≡ x/2
\frac x2 ≡ 0.5x
x^{-1} ≡ \frac{1}{x}
\sqrt{8} ≡ 2\sqrt{2}
\frac{1}{\sqrt 2} ≡ \frac{\sqrt{2}}{2}
\sqrt{12}+\sqrt{27} ≡ 5\sqrt 3
\sqrt[3]{16} ≡ 2\sqrt[3]{2}
2√3 ≡ \sqrt{12}
\frac{1}{1+\sqrt2} ≡ \sqrt2-1
\sqrt{3+2\sqrt2} ≡ 1+\sqrt2
x² ≡ x^2
x^6 x^6 ≡ x^{12}
e^{2x} ≡ (e^x)^2
e^{i\pi} ≡ -1
2^{x+1} ≡ 2\cdot 2^x
9^{9^{9^9}} ≡ 9^{9^{9^{9}}}
2^{1000000} ≡ 4^{500000}
\frac{(n+1)!}{n!} ≡ n+1
\binom{n}{2} ≡ \frac{n(n-1)}{2}
a_1 + a_2 ≡ a_2+a_{1}
\alpha\beta ≡ \beta \alpha
f(x)+1 ≡ 1+f(x)
-(x-y) ≡ y-x
\left(x+1\right) ≡ x+1
x^2y ≡ yx^2
3ab^2 ≡ b^2 \cdot 3a
2ab^{-1} ≡ \frac{2a}{b}
\frac{ab^2}{2} ≡ \frac12 b^2a
(ab)^2 ≡ a^2b^2
4^n ≡ 2^{2n}
2^n 3^n ≡ 6^n
(-1)^{n+2} ≡ (-1)^n
(-1)^{n+1} ≡ -(-1)^n
\frac{1-r^n}{1-r} ≡ \frac{r^n-1}{r-1}
n! ≡ n(n-1)!
n! ≡ (n)!
\sqrt{x}\sqrt{y} ≡ \sqrt{xy}
\sqrt{x^2+2x+1} ≡ |x+1|
|2-x| ≡ |x-2|
\sqrt[3]{-8} ≡ -2
\sqrt{-4} ≡ 2i
-2^2 ≡ -4
(1+i)^2 ≡ 2i
i^2 ≡ -1
\frac{1}{i} ≡ -i
x+1 ≢ x-1
x ≢ y
\sqrt{x} ≢ \sqrt[3]{x}
4\sqrt{2} ≢ 4
(x+1)^2 ≢ x^2+1
x^2 ≢ x^3
2x ≢ x
x ≢ |x|
\sqrt{x^2} ≢ x
a_1 ≢ a_2
x ≢ X
1+i ≢ 1-i
1,3,5,\ldots,2n-1 ≢ 1,2,\ldots,n
\frac{x+y}{2} ≢ x+\frac{y}{2}
x ≢ x+10^{-30}
x^{1000} ≢ x^{1001}
f(x) ≢ g(x)
f(x) ≢ f'(x)
y' ≢ y''
x ≢ x'
n ≢ n!
n! ≢ n!!
xy! ≢ (xy)!
xy^2 ≢ (xy)^2
ab^2 ≢ a^2b
-2^2 ≢ 4
x:y ≢ x,y
|x-5| ≢ 5-x
|x+1| ≢ x+1
|x+y+7| ≢ x+y+7
\sqrt{(x-3)^2} ≢ 3-x
\frac{|x-50|}{50-x} ≢ 1
\max(x,5) ≢ 5
\min(x,9) ≢ x
x+\lfloor\frac{x^2}{100}\rfloor ≢ x
|x^2+1| ≡ x^2+1
\max(x,y) ≡ \frac{x+y+|x-y|}{2}
\binom52 ≡ 10
# functions
\sin^2 x+\cos^2 x ≡ 1
\sin 2x ≡ 2\sin x\cos x
\cos 2x ≡ 1-2\sin^2 x
\tan x ≡ \frac{\sin x}{\cos x}
\sin\frac{\pi}{6} ≡ \frac12
\cos 60^\circ ≡ \frac12
\arctan 1 ≡ \pi/4
\sin^{-1}(1) ≡ \frac{\pi}{2}
\ln 8 ≡ 3\ln 2
\log_2 8 ≡ 3
\log_{10} 5 ≡ \lg 5
\frac{\ln 3}{\ln 2} ≡ \log_2 3
\ln e^2 ≡ 2
\ln(x^2+2x+1) ≡ 2\ln(x+1)
\ln(ab) ≡ \ln a+\ln b
\log x^2 ≡ 2\log x
\log_4 x^2 ≡ \log_2 x
e^{2\ln x} ≡ x^2
\sin 3x ≡ 3\sin x-4\sin^3 x
\frac{\sin 2x}{1+\cos 2x} ≡ \tan x
\tan\frac{x}{2} ≡ \frac{1-\cos x}{\sin x}
\tan\frac{\pi}{12} ≡ 2-\sqrt3
\tan\frac{\pi}{8} ≡ \sqrt2-1
\arcsin x+\arccos x ≡ \frac{\pi}{2}
\arctan\frac12+\arctan\frac13 ≡ \frac{\pi}{4}
\cosh x ≡ \frac{e^x+e^{-x}}{2}
\exp(x) ≡ e^x
\sin(x+y) ≡ \sin x\cos y+\cos x\sin y
\sin x ≢ \cos x
\sin x ≢ \sin y
\ln x ≢ \log_2 x
\sin 2x ≢ 2\sin x
\sin^2 x ≢ \sin x^2
\arctan x ≢ \frac{1}{\tan x}
e^x ≢ e^{-x}
\arccos(\cos x) ≢ |x|
\arctan(\tan x) ≢ x
\sin(\arcsin x) ≡ x
# rounded
3.14159 ≡ \pi
0.333333 ≡ 1/3
1.41421 ≡ \sqrt2
-0.666667 ≡ -2/3
2.71828 ≡ e
3.142857 ≡ 22/7
3.14 ≢ \pi
3.14158 ≢ \pi
3.14160 ≢ \pi
0.500001 ≢ 1/2
22/7 ≢ \pi
1.000000 ≢ 1.0000001
# base
1011_2 ≡ 1011
1011_{2} ≡ 1011_2
2A_{16} ≡ 2A_{16}
1011_2 ≢ 1011_3
1011_2 ≢ 1010_2
1011_2 ≢ 1011_8
"""


def _cases(sign):
    lines = [line for line in CASES.splitlines() if f" {sign} " in line]
    assert len(lines) > 60
    pairs = [tuple(line.split(f" {sign} ")) for line in lines]
    return [case for one, other in pairs for case in ((one, other), (other, one))]


@pytest.mark.parametrize(("answer", "gold"), _cases("≡"))
def test_same(answer, gold):
    verdict = verify(rf"\boxed{{{answer}}}", gold)
    assert verdict.is_correct, verdict


@pytest.mark.parametrize(("answer", "gold"), _cases("≢"))
def test_different(answer, gold):
    verdict = verify(rf"\boxed{{{answer}}}", gold)
    assert verdict.status in ("wrong", "unparsable", "ambiguous", "limit"), verdict


def test_a_digit_too_many_is_seen():
    for digits in (20, 100, 200, 900):
        assert verify("0." + "9" * digits, "1").status == "wrong"
        assert verify("1" + "0" * digits, "1" + "0" * (digits - 1) + "1").status == "wrong"
        assert verify("1" + "0" * digits, f"10^{{{digits}}}").is_correct


@settings(max_examples=20)
@given(st.integers(1, 50), st.integers(-200, 200), st.sampled_from("xnt"))
def test_absolute_values(a, b, name):
    """Wherever its zero lies, |ax + b| is neither of the two values that it is made of."""
    inner, turned = f"{a}{name}+({b})", f"{-b}-{a}{name}"
    for other in (f"|{turned}|", rf"\sqrt{{({inner})^2}}"):
        assert verify(rf"\boxed{{{other}}}", f"|{inner}|").is_correct
    for other in (inner, turned, rf"\max({inner}, {a + abs(b)})"):
        assert verify(rf"\boxed{{{other}}}", f"|{inner}|").status == "wrong"
        assert verify(rf"\boxed{{|{inner}|}}", other).status == "wrong"
