"""Equal rewritings are correct, and changed values are wrong.

Mathematics is drawn as a tree of tuples, and written twice with spellings drawn apart.
"""

import math
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rlgym_llm_rewards.math import verify

NAMES = ("x", "y", "n", r"\alpha", "a_1")
FUNCTIONS = ("sin", "cos", "tan", "ln", "exp", "arctan")
POINTS = [dict(zip(NAMES, values, strict=True)) for values in
          ((0.7, 1.3, 2.1, 0.4, 1.9), (1.6, 0.3, 1.2, 2.3, 0.8))]  # fmt: skip
POLICIES = ("strict", "standard", "lenient")

# ("num", Fraction), ("sym", name), ("add" or "mul", *trees), ("div", top, bottom),
# ("pow", base, exponent), ("sqrt", whole number), ("call", name, tree).
whole = st.integers(-12, 12).map(lambda n: ("num", Fraction(n)))
number = whole | st.fractions(-9, 9, max_denominator=12).map(lambda f: ("num", f))
symbol = st.sampled_from(NAMES).map(lambda name: ("sym", name))


def rational_steps(inner):
    return st.one_of(
        st.tuples(st.sampled_from(["add", "mul"]), inner, inner),
        st.tuples(st.sampled_from(["add", "mul"]), inner, inner, inner),
        st.tuples(st.just("div"), inner, inner),
        st.tuples(st.just("pow"), inner, st.integers(2, 3)),
    )


def all_steps(inner):
    return st.one_of(
        rational_steps(inner),
        st.tuples(st.just("sqrt"), st.integers(2, 30)),
        st.tuples(st.just("call"), st.sampled_from(FUNCTIONS), inner),
    )


constants = st.recursive(number, rational_steps, max_leaves=4)
polynomials = st.recursive(number | symbol, rational_steps, max_leaves=6)
expressions = st.recursive(whole | symbol, all_steps, max_leaves=5)


class Pen:
    """Writes trees; every choice of spelling is a draw."""

    def __init__(self, draw):
        self.pick = lambda *options: draw(st.sampled_from(options))
        self.shuffle = lambda items: draw(st.permutations(items))

    def brackets(self, text):
        opening, closing = self.pick(("(", ")"), (r"\left(", r"\right)"), ("( ", r"\,)"))
        return opening + text + closing

    def number(self, value):
        size = abs(Fraction(value))
        minus = self.pick("-", "−") if value < 0 else ""
        spellings = [f"{size.numerator}"]
        if size.denominator > 1:
            top, bottom = size.numerator, size.denominator
            spellings = [rf"\frac{{{top}}}{{{bottom}}}", rf"\dfrac{{{top}}}{{{bottom}}}"]
            if 10**4 % bottom == 0:
                spellings.append(f"{float(size)}")
        return minus + self.pick(*spellings)

    def operand(self, tree):
        """What may stand beside any operator."""
        is_tight = tree[0] in ("sym", "sqrt") or (
            tree[0] == "num" and tree[1] >= 0 and tree[1].denominator == 1
        )
        return self.write(tree) if is_tight else self.brackets(self.write(tree))

    def power(self, base, exponent):
        return self.operand(base) + self.pick("^{%d}", "^%d", "**%d") % exponent

    def beside(self, tree):
        if tree[0] == "sym":
            return self.write(tree)
        if tree[0] == "pow" and tree[1][0] == "sym":
            return self.power(*tree[1:])
        return self.brackets(self.write(tree))

    def write(self, tree):
        head, *args = tree
        if head == "num":
            return self.number(args[0])
        if head == "sym":
            return args[0] + (" " if args[0][0] == "\\" else "")
        if head == "add":
            first, *rest = map(self.write, self.shuffle(args))
            rest = [self.brackets(t) if t[0] in "-−" else t for t in rest]
            return self.pick("+", " + ", r"\,+").join([first, *rest])
        if head == "mul":
            factors = self.shuffle(args)
            times = self.pick(r"\cdot ", "*", r" \times ", "×", "")
            if not times:
                # Letters side by side: what stands behind one, as in xy^2, is its alone.
                return "".join(map(self.beside, factors))
            return times.join(map(self.operand, factors))
        if head == "div":
            if self.pick(True, False):
                command = self.pick(r"\frac", r"\dfrac", r"\tfrac", r"\cfrac")
                return f"{command}{{{self.write(args[0])}}}{{{self.write(args[1])}}}"
            return self.pick("/", " / ", r"\div ", "÷").join(map(self.operand, args))
        if head == "pow":
            return self.power(*args)
        if head == "sqrt":
            return self.pick(r"\sqrt{%d}", "sqrt(%d)", "√%d", r"%d^{1/2}") % args[0]
        return "\\" + args[0] + self.pick("", " ") + self.brackets(self.write(args[1]))


def value_at(tree, point):
    head, *args = tree
    if head in ("num", "sym"):
        return float(args[0]) if head == "num" else point[args[0]]
    if head == "sqrt":
        return math.sqrt(args[0])
    if head == "call":
        function = {"ln": math.log, "arctan": math.atan}.get(args[0]) or getattr(math, args[0])
        return function(value_at(args[1], point))
    if head == "pow":
        return value_at(args[0], point) ** args[1]
    values = [value_at(arg, point) for arg in args]
    if head == "div":
        return values[0] / values[1]
    return math.fsum(values) if head == "add" else math.prod(values)


def values(tree):
    """At both points, or None where it has none: then it may be no answer at all."""
    try:
        found = [value_at(tree, point) for point in POINTS]
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return found if all(abs(value) < 1e9 for value in found) else None


def changed(tree, at):
    """The tree with 1 added to its at-th leaf that is a number, or to the whole."""
    leaves = [0]

    def copy(node):
        if not isinstance(node, tuple):
            return node
        if node[0] == "num":
            leaves[0] += 1
            return ("num", node[1] + 1) if leaves[0] - 1 == at else node
        return tuple(copy(part) for part in node)

    found = copy(tree)
    return found if found != tree else ("add", tree, ("num", Fraction(1)))


def assert_same(answer, gold):
    verdict = verify(rf"Hence \boxed{{{answer}}}.", gold)
    assert verdict.is_correct, verdict


def assert_different(answer, gold):
    verdict = verify(rf"Hence \boxed{{{answer}}}.", gold)
    assert verdict.status in ("wrong", "limit"), verdict


@pytest.mark.parametrize("trees", [constants, polynomials, expressions], ids=["c", "p", "e"])
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_another_spelling_is_correct_and_another_value_wrong(trees, data):
    tree = data.draw(trees)
    found = values(tree)
    assume(found is not None)
    pen = Pen(data.draw)
    gold = pen.write(tree)
    assert_same(pen.write(tree), gold)
    for policy in POLICIES:
        assert verify(rf"\boxed{{{gold}}}", gold, policy=policy).is_correct
    other = changed(tree, data.draw(st.integers(0, 3)))
    others = values(other)
    assume(others is not None)
    if any(abs(a - b) > 1e-6 * (1 + abs(a)) for a, b in zip(found, others, strict=True)):
        assert_different(pen.write(other), gold)


@settings(max_examples=60)
@given(data=st.data())
def test_expanded_or_factored(data):
    """(a x + b)(c x + d)... is its coefficients' polynomial, and no other."""
    factors = data.draw(st.lists(st.tuples(*[st.integers(-9, 9)] * 2), min_size=2, max_size=4))
    assume(all(a for a, _ in factors))
    product = [1]
    for a, b in factors:
        up, down = [a * c for c in product] + [0], [0] + [b * c for c in product]
        product = [one + other for one, other in zip(up, down, strict=True)]
    pen = Pen(data.draw)

    def polynomial(coefficients):
        powers = range(len(coefficients) - 1, -1, -1)
        terms = [f"{c}x^{{{p}}}" for c, p in zip(coefficients, powers, strict=True) if c]
        return "+".join(terms).replace("+-", pen.pick("-", " - ", "−"))

    factored = pen.pick("", r"\cdot ").join(
        pen.brackets(f"{a}x+{b}".replace("+-", "-")) for a, b in pen.shuffle(factors)
    )
    assert_same(factored, polynomial(product))
    assert_same(polynomial(product), factored)
    at = data.draw(st.integers(0, len(product) - 1))
    product[at] += 1
    assume(any(product))
    assert_different(factored, polynomial(product))


KINDS = {
    "tuple": "({}, {}, {})",
    "set": r"\{{{}, {}, {}\}}",
    "row": r"\begin{{pmatrix}} {} & {} & {} \end{{pmatrix}}",
    "column": r"\begin{{bmatrix}} {} \\ {} \\ {} \end{{bmatrix}}",
    "list": "{}, {}, {}",
    "ratio": "{}:{}:{}",
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_of_several_parts(kind, data):
    size = st.fractions(1, 50, max_denominator=6)
    parts = data.draw(st.lists(size, min_size=3, max_size=3, unique=True))
    if kind != "ratio":
        parts = [part * data.draw(st.sampled_from([1, -1])) for part in parts]
    pen = Pen(data.draw)

    def text(items):
        return KINDS[kind].format(*map(pen.number, items))

    ordered = kind not in ("set", "list")
    assert_same(text(parts if ordered else pen.shuffle(parts)), text(parts))
    first, second, third = parts
    (assert_different if ordered else assert_same)(text([second, first, third]), text(parts))
    assert_different(text([first, second, third + 51]), text(parts))
    assert_different(text([first, first, third]), text(parts))


@settings(max_examples=100)
@given(data=st.data())
def test_intervals(data):
    low = data.draw(st.fractions(-20, 20, max_denominator=6))
    high = low + data.draw(st.fractions(Fraction(1, 6), 9, max_denominator=6))
    opening, closing = data.draw(st.sampled_from("([")), data.draw(st.sampled_from(")]"))
    pen = Pen(data.draw)

    def interval(start, end, brackets=opening + closing):
        return f"{brackets[0]}{pen.number(start)}, {pen.number(end)}{brackets[1]}"

    less = {"(": "<", "[": r"\le ", ")": "<", "]": r"\leq "}
    more = {"(": ">", "[": r"\ge ", ")": ">", "]": r"\geq "}
    spellings = [
        interval(low, high),
        rf"x \in {interval(low, high)}",
        f"{pen.number(low)} {less[opening]} x {less[closing]} {pen.number(high)}",
        f"{pen.number(high)} {more[closing]} x {more[opening]} {pen.number(low)}",
        rf"\left{opening} {pen.number(low)}, {pen.number(high)} \right{closing}",
    ]
    gold = data.draw(st.sampled_from(spellings))
    assert_same(data.draw(st.sampled_from(spellings)), gold)
    middle = (low + high) / 2
    assert_same(interval(low, middle, opening + "]") + r"\cup " +
                interval(middle, high, "(" + closing), gold)  # fmt: skip
    assert_different(interval(low, high + 1), gold)
    assert_different(interval(low - 1, high), gold)
    assert_different(interval(low, high, opening + ("]" if closing == ")" else ")")), gold)
    assert_different(interval(low, high, ("[" if opening == "(" else "(") + closing), gold)


@settings(max_examples=60)
@given(st.lists(st.integers(-9, 9), min_size=3, max_size=3), st.integers(-5, 5), st.data())
def test_relations(coefficients, factor, data):
    a, b, c = coefficients
    assume(a and b and factor)
    relation = data.draw(st.sampled_from(["=", "<", r"\le", ">", r"\ge"]))
    flipped = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "="}[relation]
    gold = f"{a}x+{b}y {relation} {c}".replace("+-", "-")
    sign = relation if factor > 0 else flipped
    assert_same(f"{a * factor}x + ({b * factor})y {sign} {c * factor}", gold)
    assert_same(f"{c} {flipped} {b}y+({a})x", gold)
    assert_same(f"{a}x {relation} {c} - ({b})y", gold)
    assert_different(f"{a}x + ({b})y {relation} {c + 1}", gold)
    assert_different(f"{a + 10}x + ({b})y {relation} {c}", gold)
    if relation != "=":
        assert_different(f"{a}x + ({b})y {flipped} {c}", gold)
