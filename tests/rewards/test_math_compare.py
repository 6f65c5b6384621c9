"""What is the same answer and what is not, kind by kind, judged in both directions."""

import pytest
from rlgym_llm_rewards.math import verify

CASES = r"""
# tuple
(1,2) ≡ \left(1, 2\right)
(1/2, 3) ≡ (0.5, 3)
\langle 1, 2\rangle ≡ (1,2)
(x,y)=(1,2) ≡ (1,2)
x=1, y=2 ≡ (1,2)
((1,2),3) ≡ ((1, \frac42), 3)
(1,2) ≢ (2,1)
(1,2) ≢ (1,2,3)
(1,2) ≢ \{1,2\}
(1,2) ≢ 1
((1,2),3) ≢ (1,(2,3))
x=1, y=2 ≢ x=2, y=1
x=1, y=2 ≢ (2,1)
(a,b)=(1,2) ≡ a=1,b=2
(a,b)=(1,2) ≢ a=2,b=1
2(1,2) ≡ (2,4)
-(1,2) ≡ (-1,-2)
(1,2)+(3,4) ≡ (4,6)
A(1,2) ≡ (1,2)
# open ends
[0,1[ ≡ [0,1)
]0,1] ≡ (0,1]
]0,1[ ≡ 0<x<1
[1,2,99[ ≢ [1,2)
]1,2,99[ ≢ (1,2)
# congruence
x \equiv 10 \pmod 7 ≡ x \equiv 3 \pmod 7
3 \pmod 7 ≡ 3 (mod 7)
x \equiv 3 \pmod 5 ≢ x \equiv 3 \pmod 7
x \equiv 1 \pmod 2 ≢ x = 1
x \equiv \infty \pmod 7 ≢ x \equiv 3 \pmod 7
# base
-1011_2 ≡ -1011
0_2 ≡ 0
-1011_2 ≢ 1011
-1011_2 ≢ -11
# set
\{1,2\} ≡ \{2,1\}
1, 2 ≡ 2,1
1 and 2 ≡ \{1,2\}
\{1,1,2\} ≡ \{1,2\}
\{\} ≡ \emptyset
\pm 2 ≡ 2, -2
1 \pm \sqrt{2} ≡ 1+\sqrt2, 1-\sqrt2
x = 1 \text{ or } x = 2 ≡ 1, 2
(1,2),(3,4) ≡ (3,4),(1,2)
x=\pm 3 ≡ \{3,-3\}
\{1,2\} ≢ \{1,3\}
\{1,2\} ≢ \{1,2,3\}
1, 2 ≢ 1
\pm 2 ≢ 2
\{0\} ≢ \emptyset
\{1,1,2\} ≢ \{1,2,2,3\}
# interval
(1,2] ≡ 1<x\le 2
[1,2] ≡ 1 \leq x \leq 2
2\ge x>1 ≡ 1<x\le2
x \in (1,2] ≡ (1,2]
(1,2)\cup(3,4) ≡ (3,4) \cup (1,2)
(1,2]\cup[2,3) ≡ (1,3)
(-\infty, 2) ≡ x<2
[0,\infty) ≡ x\ge 0
(-\infty,2)\cup(2,\infty) ≡ x\neq 2
\mathbb{R} ≡ (-\infty,\infty)
\mathbb{R}\setminus\{2\} ≡ (-\infty,2)\cup(2,\infty)
\{x \mid 1<x<2\} ≡ (1,2)
x<1 \text{ or } x>2 ≡ (-\infty,1)\cup(2,\infty)
[0,2]\cap[1,3] ≡ [1,2]
[1,2)\cup(2,3] ≡ [1,3]\setminus\{2\}
x>1\text{ and }x<2 ≡ (1,2)
[\frac12, \sqrt{4}] ≡ [0.5,2]
(1,2) ≢ [1,2]
(1,2] ≢ [1,2)
[1,2) ≢ [1,3)
(1,2] ≢ 1<x<2
-[0,1) ≢ 1
(1,2)\cup(3,4) ≢ (1,4)
(1,2)\cup(2,3) ≢ (1,3)
[1,2) ≢ 1
x\ge 0 ≢ x>0
x \neq 5 ≢ 5
x<1 ≢ y<1
[0,\infty) ≢ [0,10^{100})
\{x|x>2\} ≡ (2,\infty)
\{x:x>2\} ≡ x>2
|x|<2 ≡ -2<x<2
x\not=2 ≡ x\neq 2
(1,2)\cup\{2\} ≡ (1,2]
x>5 \text{ or } x<2 ≢ (2,5)
# inequality
2x<4 ≡ x<2
-x<3 ≡ x>-3
x>3 ≡ 3<x
x+y<2 ≡ 2>y+x
x+y<2 ≡ 2x+2y<4
2x<4 ≢ x<4
-x<3 ≢ x<-3
x>3 ≢ x<3
x+y<2 ≢ x+y>2
# equation
y=2x+1 ≡ 2x-y+1=0
x=5 ≡ 5
5=x ≡ x=5
x = 2+3 = 5 ≡ 5
2x+4y=6 ≡ x+2y=3
f(x)=x^2+1 ≡ x^2+1
x^2+y^2=25 ≡ y^2=25-x^2
x \approx 3 ≡ 3
\frac{x^2}{4}+\frac{y^2}{9}=1 ≡ 9x^2+4y^2=36
y-2=3(x-1) ≡ y=3x-1
A=\pi r^2 ≡ \pi r^2
P(A)=1/2 ≡ 0.5
x=5 ≢ y=5
x=5 ≢ x=6
x+y=1 ≢ 1
2x=4 ≢ 2
x=1 ≢ x^2=1
xy=0 ≢ x=0
f(x)=x^2 ≢ f(x)=x^3
g(x)=x^2 ≢ f(x)=x^2
2x+z=1 ≢ 1
y=2x+1 ≢ y=2x
x^2+y^2=25 ≢ x^2-y^2=25
x=5 ≢ x\ne5
# matrix
\begin{pmatrix}1&2\\3&4\end{pmatrix} ≡ \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}
\begin{pmatrix}1/2\\3\end{pmatrix} ≡ \begin{pmatrix} 0.5 \\ 3 \end{pmatrix}
[[1,2],[3,4]] ≡ \begin{pmatrix}1&2\\3&4\end{pmatrix}
2\begin{pmatrix}1&2\end{pmatrix} ≡ \begin{pmatrix}2&4\end{pmatrix}
\begin{pmatrix}x+1\end{pmatrix} ≡ \begin{pmatrix}1+x\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ≢ \begin{pmatrix}1&2\\4&3\end{pmatrix}
\begin{pmatrix}1&2\end{pmatrix} ≢ \begin{pmatrix}1\\2\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ≢ \begin{pmatrix}1&2&3&4\end{pmatrix}
\begin{pmatrix}1\end{pmatrix} ≢ \begin{pmatrix}2\end{pmatrix}
# ratio
3:4 ≡ 6:8
1:2:3 ≡ 2:4:6
3:4 ≡ \frac34
12:30 ≡ 12:30
3:4 ≢ 4:3
1:00 ≢ 12:00
0:30 ≢ 0:45
2:15 ≢ 2:45
1:2:3 ≢ 1:2
1:2:3 ≢ 1:2:4
# words
\text{Monday} ≡ monday
\text{Yes} ≡ yes.
No ≡ no
TRUE ≡ True
\text{not prime} ≡ Not prime
yes ≢ no
prime ≢ not prime
Monday ≢ Tuesday
two ≢ 2
"""


def _cases(sign):
    lines = [line for line in CASES.splitlines() if f" {sign} " in line]
    assert len(lines) > 30
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


# What one direction alone can say: the gold is one value, or cannot be one.
@pytest.mark.parametrize(
    ("answer", "gold", "status"),
    [
        ("4 2", "42", "unparsable"),
        ("5 or 6", "5", "ambiguous"),
        ("5 or 6", "5, 6", "correct"),
        ("5 or 5.0", "5", "correct"),
        ("5, 6", "5", "wrong"),
        ("5 = 6", "6", "wrong"),
        ("1/0", "5", "unparsable"),
        ("]1[", "1", "unparsable"),
        ("1", "]1[", "bad_gold"),
        (r"\log 0", "5", "unparsable"),
        ("0^0", "1", "unparsable"),
        ("x^", "5", "unparsable"),
        ("9" * 5000, "5", "limit"),
        ("5", "1/0", "bad_gold"),
        ("5", r"\frac{1}{2-2}", "bad_gold"),
        ("5", r"\frac{1", "bad_gold"),
        ("5", "", "bad_gold"),
        ("5", " ", "bad_gold"),
        ("5", r"\boxed{}", "bad_gold"),
    ],
)
def test_status(answer, gold, status):
    assert verify(rf"\boxed{{{answer}}}", gold).status == status
