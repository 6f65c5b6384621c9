r"""Reads LaTeX and plain mathematics into a tree, by recursive descent over a closed vocabulary.

    statement  = relation {(, | ; | and | or) relation}
    relation   = union {(= | < | \le | \in | ...) union}
    union      = ratio {(\cup | \cap | \setminus) ratio}
    ratio      = sum {: sum}
    sum        = [sign] product {(+ | - | \pm) product}
    product    = power {(* | / | \cdot | nothing) power} [unit]
    power      = atom {! | % | ^ exponent | _ subscript}

Nothing is evaluated here but what a number is written with (1,234 and 3 1/4 are numbers). Depth,
length and digits are bounded, so the time is linear and the stack shallow.
"""

from __future__ import annotations

from collections.abc import Collection

from rlgym_llm.lazy_pattern import lazy_pattern
from rlgym_llm_rewards.math.parsing.atoms import Atoms
from rlgym_llm_rewards.math.parsing.cursor import MAX_DEPTH
from rlgym_llm_rewards.math.parsing.nodes import Node, number, sequence
from rlgym_llm_rewards.math.parsing.show import show
from rlgym_llm_rewards.math.parsing.tokens import Comma, LimitError, UnreadableError, tokenize
from rlgym_llm_rewards.math.parsing.units import CURRENCIES, SCALES, UNITS, unit_name
from rlgym_llm_rewards.math.parsing.vocabulary import (
    ACCENTS,
    BIG,
    BINOMIALS,
    CONSTANTS,
    DEGREES,
    FRACTIONS,
    FUNCTIONS,
    GREEK,
    ORDINALS,
    PAIRS,
    PERCENT,
    RELATIONS,
)

__all__ = ["parse"]

_SEPARATORS = frozenset([",", ";", "and", "or", "quad", r"\land", r"\lor", r"\&"])
_OR = frozenset(["or", r"\lor", ",", "quad"])
_MULTIPLY = frozenset(["*", r"\cdot", r"\times", r"\ast", r"\star"])
_DIVIDE = frozenset(["/", r"\div"])
_MODULO = frozenset([r"\bmod", r"\mod", r"\pmod", "mod"])
_MINUTES = lazy_pattern("[0-5][0-9]")
_FILLERS = frozenset("about approximately roughly exactly the final answer is value equals".split())
_SIGNS = {"+": "add", "-": "neg", r"\pm": "pm", r"\mp": "mp"}
_SET_OPERATORS = {r"\cup": "union", r"\cap": "inter", r"\setminus": "minus", r"\backslash": "minus"}
_CLOSING = frozenset([")", "]", "}", r"\}", "&", "\\\\", r"\rangle", r"\end", ""])
_NO_OPERANDS = _SEPARATORS | PERCENT | DEGREES | ORDINALS | {"mod"}
_OPERAND_COMMANDS = (
    FRACTIONS | BINOMIALS | ACCENTS.keys() | CONSTANTS.keys() | BIG.keys() | PAIRS.keys()
    | {r"\sqrt", r"\mathbb", r"\mathcal", r"\begin"}
    | {"\\" + name for name in GREEK} | {"\\" + name for name in FUNCTIONS}
) - {r"\|"}  # fmt: skip


def parse(text: str, comma: Comma = "thousands", imaginary: str = "i") -> Node:
    r"""The tree of an answer; raises UnreadableError, or LimitError for what is too large.

    >>> from rlgym_llm_rewards.math.parsing.show import show
    >>> show(parse(r"x = -\frac{1}{2}y^2"))
    'x = -(1/2)*y^2'
    >>> show(parse("3 1/4")), show(parse(r"3\frac14"))
    ('13/4', '13/4')
    """
    parser = Parser(tokenize(text, comma), comma, imaginary)
    node = parser.statement()
    if parser.token.kind != "end":
        raise UnreadableError(f"{parser.token.text!r} is out of place")
    return node


class Parser(Atoms):
    """The grammar, one method a level; each leaves the position behind what it read."""

    # -- statements ----------------------------------------------------------------------------

    def statement(self) -> Node:
        items, joints = self.items()
        if len(items) == 1:
            return items[0]
        is_choice = joints <= _OR and not joints.isdisjoint(("or", r"\lor"))
        return sequence("or" if is_choice else "list", items)

    def items(self) -> tuple[list[Node], set[str]]:
        """Relations and what stands between them; a separator may close them."""
        items, joints = [self.relation()], set[str]()
        while self.is_sign(_SEPARATORS):
            while self.is_sign(_SEPARATORS):
                joints.add(self.take().text)
            if self.token.text in _CLOSING:
                break
            items.append(self.relation())
        return items, joints

    def is_sign(self, among: Collection[str]) -> bool:
        """Whether the next token is one of these, and no word of a text."""
        kind, text, _ = self.token
        return kind != "text" and text in among

    def relation(self) -> Node:
        self.deeper()
        ops: list[str] = []
        operands: list[Node] = []
        if self.is_sign(RELATIONS):
            op = RELATIONS[self.take().text]
            if op not in ("=", "~"):  # "\ne 5" relates nothing to 5
                ops.append(op)
                operands.append(Node("const", ("nothing",)))
        operands.append(self.union())
        while self.is_sign(RELATIONS):
            if self.token.text == r"\mid":
                break
            ops.append(RELATIONS[self.take().text])
            operands.append(self.union())
        self.depth -= 1
        return Node("rel", (tuple(ops), *operands)) if ops else operands[0]

    def union(self) -> Node:
        node = self.ratio()
        while self.token.text in _SET_OPERATORS:
            op = _SET_OPERATORS[self.take().text]
            node = Node("setop", (op, node, self.ratio()))
        return node

    def ratio(self) -> Node:
        parts = [self.sum()]
        while not self.in_set and self.token.text in (":", r"\colon", "to"):
            self.take()
            minutes = self.token.text
            parts.append(self.sum())
        if len(parts) == 1:
            return parts[0]
        if len(parts) == 2 and _MINUTES.fullmatch(minutes):
            last, unit = parts[1].args if parts[1].head == "unit" else (parts[1], None)
            time = Node("time", (parts[0], last))
            return time if unit is None else Node("unit", (time, unit))
        return Node("ratio", tuple(parts))

    # -- arithmetic ----------------------------------------------------------------------------

    def sum(self) -> Node:
        terms = [self.signed()]
        while self.is_sign(_SIGNS):
            sign = self.take().text
            term = self.signed()
            terms.append(term if sign == "+" else Node(_SIGNS[sign], (term,)))
        node = Node("add", tuple(terms)) if len(terms) > 1 else terms[0]
        if self.skip(r"\bmod"):
            return Node("call", ("mod", node, self.product()))
        if self.skip(r"\pmod", r"\mod", "mod"):
            return Node("unit", (node, f"mod {show(self.product())}"))
        if self.is_congruence():
            self.position += 2
            node = Node("unit", (node, f"mod {show(self.product())}"))
            self.expect(")")
        return node

    def is_congruence(self) -> bool:
        """Whether ``(mod`` comes next: what stands in it is a modulus, no factor."""
        ahead = self.tokens[self.position : self.position + 2]
        return ahead[0].text == "(" and ahead[-1].text in _MODULO

    def signed(self) -> Node:
        while self.token.kind == "text" and self.token.text.lower().rstrip(":") in _FILLERS:
            self.take()
        signs = []
        while self.is_sign(_SIGNS) or self.token.text in ("minus", "negative"):
            signs.append(self.take().text)
            if len(signs) > 100:
                raise LimitError("too many signs in a row")
        node = self.product()
        for sign in reversed(signs):
            if sign != "+":
                node = Node(_SIGNS.get(sign, "neg"), (node,))
        return node

    def product(self) -> Node:
        factors = [self.power()]
        while True:
            text = self.token.text
            if self.token.kind == "text":
                break
            if text in _MULTIPLY:
                self.take()
                factors.append(self.factor())
            elif text in _DIVIDE:
                self.take()
                factors = [_quotient(_product(factors), self.factor())]
            elif text == "x" and factors[-1].head == "num" and self.is_before_number():
                self.take()
                factors.append(self.factor())
            elif self.starts_operand(after=factors[-1]):
                factors.append(self.power())
            else:
                break
        return self.unit_behind(_product(factors))

    def is_before_number(self) -> bool:
        """Whether a number follows the next token: the x of 1.5 x 10^3 is a sign."""
        return self.tokens[self.position + 1].kind == "number"

    def factor(self) -> Node:
        r"""A factor behind an operator, which may carry a sign: ``2 \cdot -3``."""
        if self.skip("-"):
            return Node("neg", (self.power(),))
        self.skip("+")
        return self.power()

    def starts_operand(self, after: Node) -> bool:
        """Whether what follows multiplies without a sign."""
        kind, text, _ = self.token
        if kind == "number":
            # Two numbers side by side are no product; \frac12 3 and (x)3 are.
            return after.head not in ("num", "sym", "based", "percent", "unit")
        if kind == "word":
            return text not in _NO_OPERANDS and not self.is_unit(after)
        if kind == "command":
            return text in _OPERAND_COMMANDS
        if text == "|":
            # In a set the bar behind a variable begins the condition.
            return self.open_bars == 0 and not (self.in_set and after.head == "sym")
        return kind == "sign" and text in ("(", "{") and not self.is_congruence()

    def power(self) -> Node:
        node = self.atom()
        start = self.position
        while self.token.kind != "text":
            if self.position - start > MAX_DEPTH:
                raise LimitError("so many marks behind an operand")
            text = self.token.text
            if text == "!":
                self.take()
                node = Node("call", ("factorial", node))
            elif text in PERCENT:
                self.take()
                if node.head == "percent":
                    raise UnreadableError("two percent signs")
                node = Node("percent", (node,))
            elif text in DEGREES or (
                text in ORDINALS and node.head == "num" and not self.token.spaced
            ):
                node = self.in_degrees(node) if self.take().text in DEGREES else node
            elif text in ("^", "**"):
                self.take()
                ahead = self.tokens[self.position : self.position + 2]
                is_degree = any(token.text in DEGREES for token in ahead)
                exponent = self.exponent()
                if exponent is None and is_degree:
                    node = self.in_degrees(node)
                if exponent is None and self.token.text in ("C", "F"):
                    node = Node("unit", (node, "°" + self.take().text))
                node = node if exponent is None else Node("pow", (node, exponent))
            elif text == "_" and node.head == "num":
                self.take()
                node = Node("based", (str(node.args[0]), _base(self.subscript())))
            else:
                break
        return node

    def in_degrees(self, node: Node) -> Node:
        """A value in degrees: as it is written, but in radians within a trigonometric function."""
        degree = Node("div", (Node("const", ("pi",)), number(180)))
        return Node("mul", (node, degree)) if self.in_trigonometry else node

    def exponent(self) -> Node | None:
        """What stands behind ``^``; None for degrees and ordinals, which are no exponents."""
        self.deeper()
        in_group = self.skip("{")
        node: Node | None
        if self.token.kind == "text":
            node = _exponent_text(self.take().text)
        elif self.skip(*DEGREES):
            node = None
        elif in_group:
            node = self.sum()
        else:
            node = self.bare_exponent()
        if in_group:
            self.expect("}")
        self.depth -= 1
        return node

    def bare_exponent(self) -> Node | None:
        """An exponent without braces: ``-2``, ``n!``, ``2^2``."""
        is_negative = False
        while self.token.text in ("+", "-"):
            is_negative ^= self.take().text == "-"
        if self.skip("o"):
            return None
        if self.skip("'"):
            return Node("sym", ("'",))
        node = self.atom()
        if self.skip("!"):
            node = Node("call", ("factorial", node))
        if self.skip("^", "**"):
            exponent = self.exponent()
            node = node if exponent is None else Node("pow", (node, exponent))
        return Node("neg", (node,)) if is_negative else node

    def is_unit(self, after: Node) -> bool:
        """Whether the word ahead is a unit or a noun that counts things, no product of letters."""
        text = self.token.text
        if text in FUNCTIONS or text in GREEK:
            return False
        last = after.args[-1] if after.head == "mul" else after
        scaled = last.head == "num" or (last.head == "pow" and last.args[0].head == "num")
        if not scaled and after.head not in ("div", "unit", "percent"):
            return False
        if len(text) > 3 or (len(text) > 1 and text in UNITS):
            return True
        # "5 m", "5 m/s": a letter apart from its number and last of all.
        ahead = self.tokens[self.position + 1]
        return text in UNITS and self.token.spaced and ahead.text in ("", "/")

    def unit_behind(self, node: Node) -> Node:
        """The node with the unit or noun that follows it, if one does."""
        while self.token.text in SCALES:
            node = Node("mul", (node, number(SCALES[self.take().text])))
        words: list[str] = []
        while self.token.text not in ("to", *SCALES) and (
            self.token.kind == "text"
            or (words and self.token.kind == "word" and self.token.text not in _SEPARATORS)
            or (self.token.kind == "word" and self.is_unit(node))
        ):
            words += self.take().text.split()
            while self.is_sign(("^", "/")):
                mark = self.take().text
                words[-1] += mark + (self.subscript() if mark == "^" else self.take().text)
            if len(words) > 40:
                raise LimitError("so many words")
        if self.token.text in CURRENCIES:
            words.append(CURRENCIES[self.take().text])
        if not words:
            return node
        if words[0].lower() in PERCENT:
            return Node("percent", (node,))
        if words[0].lower() in DEGREES:
            return node
        name = unit_name(words)
        if name is None:
            raise UnreadableError(f"a number with the words {' '.join(words)!r}")
        return Node("unit", (node, name))


def _base(text: str) -> str:
    """The base in digits: ``two`` is 2."""
    words = "two three four five six seven eight nine ten eleven twelve".split()
    return str(words.index(text) + 2) if text in words else text


def _quotient(top: Node, bottom: Node) -> Node:
    """A quotient; the percent sign of 1/2% belongs to all of it."""
    if bottom.head == "percent":
        return Node("percent", (Node("div", (top, bottom.args[0])),))
    return Node("div", (top, bottom))


def _product(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))


def _exponent_text(text: str) -> Node | None:
    if text in ORDINALS or text in DEGREES or text == "o":
        return None
    if len(text) == 1:
        return Node("sym", (text,))
    raise UnreadableError(f"the exponent {text!r}")
