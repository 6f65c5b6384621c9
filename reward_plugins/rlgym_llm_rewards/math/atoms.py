"""The lowest level of the grammar: numbers, names, functions, brackets, matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction

from rlgym_llm_rewards.math.nodes import Node, number, sequence
from rlgym_llm_rewards.math.tokens import Comma, LimitError, Token, UnreadableError, read_number
from rlgym_llm_rewards.math.vocabulary import (
    ACCENTS,
    BIG,
    BINOMIALS,
    CALLABLE_LETTERS,
    CONSTANTS,
    CURRENCIES,
    FRACTIONS,
    FUNCTIONS,
    GREEK,
    MATRICES,
    PAIRS,
    SETS,
    WORD_CONSTANTS,
)

__all__ = ["MAX_DEPTH", "Atoms"]

MAX_DEPTH = 40
"""Deepest nesting that is read."""


class Atoms(ABC):
    """Reads one operand; the levels above it are the `Parser`'s."""

    def __init__(self, tokens: list[Token], comma: Comma) -> None:
        self.tokens = tokens
        self.comma = comma
        self.position = 0
        self.depth = 0
        self.open_bars = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def take(self) -> Token:
        """The next token, taken; raises UnreadableError at the end."""
        token = self.tokens[self.position]
        if token.kind == "end":
            raise UnreadableError("the text ends too early")
        self.position += 1
        return token

    def skip(self, *texts: str) -> bool:
        """Takes the next token if it is one of these."""
        if self.token.text in texts and self.token.kind not in ("text", "end"):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Takes the token that must come next."""
        if not self.skip(text):
            raise UnreadableError(f"{text!r} is missing before {self.token.text!r}")

    def deeper(self) -> None:
        """Counts one level of nesting; raises LimitError where there are too many."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitError(f"nested deeper than {MAX_DEPTH}")

    @abstractmethod
    def items(self) -> tuple[list[Node], set[str]]:
        """Relations and what stands between them; a separator may close them."""

    @abstractmethod
    def relation(self) -> Node:
        """A chain of relations, or a single value."""

    @abstractmethod
    def sum(self) -> Node:
        """A sum."""

    @abstractmethod
    def power(self) -> Node:
        """An operand with its exponents and marks."""

    @abstractmethod
    def exponent(self) -> Node | None:
        """What stands behind ``^``; None for degrees and ordinals."""

    @abstractmethod
    def starts_operand(self, after: Node) -> bool:
        """Whether what follows multiplies without a sign."""

    def atom(self) -> Node:
        """One operand without its exponents."""
        token = self.take()
        if token.kind == "number":
            return self.number(token.text)
        if token.kind == "word":
            return self.word(token.text)
        if token.kind == "text":
            if len(token.text) == 1:
                return self.letter(token.text)
            raise UnreadableError(f"the words {token.text!r}")
        if token.kind == "command":
            return self.command(token.text)
        return self.bracket(token.text)

    def number(self, text: str) -> Node:
        """A number, with the fraction that makes it a mixed one."""
        value, places, exponent = read_number(text, self.comma)
        node = number(value, places)
        if exponent:
            ten = Node("pow", (number(10), number(exponent)))
            return Node("mul", (node, ten))
        if places is None and node.args[0].__class__ is int:
            fraction = self.mixed_fraction()
            if fraction is not None:
                return number(value + fraction)
        return node

    def mixed_fraction(self) -> Fraction | None:
        r"""The fraction of a mixed number: ``1/4`` behind a space, or ``\frac14``."""
        start = self.position
        ahead = self.tokens[start : start + 4]
        if self.token.text in FRACTIONS:
            self.take()
            top, bottom = self.argument(of_fraction=True), self.argument(of_fraction=True)
        elif (
            [t.kind for t in ahead[:3]] == ["number", "sign", "number"]
            and (ahead[0].spaced and ahead[1].text == "/" and ahead[3].text not in ("^", "!", "_"))
        ):  # fmt: skip
            self.position += 3
            top, bottom = (
                number(*read_number(t.text, self.comma)[:2]) for t in (ahead[0], ahead[2])
            )
        else:
            return None
        whole_parts = [n.args[0] for n in (top, bottom) if n.head == "num" and n.args[1] is None]
        if (
            len(whole_parts) == 2
            and all(isinstance(p, int) for p in whole_parts)
            and whole_parts[1]
        ):
            return Fraction(*whole_parts)
        self.position = start
        return None

    def word(self, text: str) -> Node:
        """Letters: a function, a constant, or a product of variables."""
        if text in FUNCTIONS:
            return self.call(FUNCTIONS[text])
        if text in WORD_CONSTANTS:
            return Node("const", (WORD_CONSTANTS[text],))
        if text in ("emptyset", "empty"):
            return Node("const", ("empty",))
        if len(text) == 1:
            return self.letter(text)
        if text in GREEK:
            return self.subscripted(text)
        if len(text) > 3:
            raise UnreadableError(f"the word {text!r}")
        # A product of letters; what follows (a subscript, an argument) is the last one's.
        return Node("mul", (*map(_plain_letter, text[:-1]), self.letter(text[-1])))

    def letter(self, name: str) -> Node:
        """One letter: e, i, a function of its bracket, or a variable."""
        if name in CALLABLE_LETTERS:
            symbol = self.subscripted(name)
            if self.token.text == "(" and symbol.head == "sym":
                self.take()
                items, _ = self.items()
                self.expect(")")
                return Node("call", (symbol.args[0], *items))
            return symbol
        if name in ("e", "i") and self.token.text != "_":
            return Node("const", (name,))
        return self.subscripted(name)

    def subscripted(self, name: str) -> Node:
        """A variable with its subscripts and primes."""
        while True:
            if self.skip("_"):
                name += "_" + self.subscript()
            elif self.token.text == "'" and self.token.kind == "sign":
                self.take()
                name += "'"
            else:
                return Node("sym", (name,))

    def subscript(self) -> str:
        """The text of a subscript: a name rather than a value."""
        if not self.skip("{"):
            return self.take().text.lstrip("\\")
        parts = []
        while not self.skip("}"):
            parts.append(self.take().text)
            if len(parts) > MAX_DEPTH:
                raise LimitError("a subscript that long")
        return "".join(parts).lstrip("\\")

    def command(self, text: str) -> Node:
        """What a LaTeX command stands for."""
        name = text[1:]
        if text in FRACTIONS:
            return Node("div", (self.argument(of_fraction=True), self.argument(of_fraction=True)))
        if text == r"\sqrt":
            return self.root()
        if text in BINOMIALS:
            return Node("call", ("binom", self.argument(), self.argument()))
        if text in CONSTANTS:
            return Node("const", (CONSTANTS[text],))
        if name in FUNCTIONS:
            return self.call(FUNCTIONS[name])
        if name in GREEK:
            return self.subscripted(name)
        if text in PAIRS:
            return self.bracket(text)
        if text in CURRENCIES:
            return Node("unit", (self.power(), CURRENCIES[text]))
        if text in (r"\mathbb", r"\mathcal", r"\mathfrak", r"\mathscr"):
            letter = self.subscript()
            if text == r"\mathbb" and letter in SETS:
                return Node("const", (SETS[letter],))
            return self.subscripted(letter)
        if text in ACCENTS:
            return Node("call", (name, self.argument()))
        if text in BIG:
            return self.big(BIG[text])
        if text == r"\begin":
            return self.matrix()
        return self.bracket(text)

    def root(self) -> Node:
        """A root from behind its sign."""
        index: Node = number(2)
        if self.skip("["):
            index = self.sum()
            self.expect("]")
        return Node("root", (self.argument(), index))

    def argument(self, *, of_fraction: bool = False) -> Node:
        r"""A LaTeX argument: a group or a single token; of a fraction, a single digit."""
        if self.skip("{"):
            node = self.relation()
            self.expect("}")
            return node
        token = self.token
        if token.kind == "number":
            if of_fraction and token.text.isdigit() and len(token.text) > 1:
                rest = token._replace(text=token.text[1:], spaced=False)
                self.tokens[self.position] = rest
                return number(int(token.text[0]))
            self.take()
            value, places, _ = read_number(token.text, self.comma)
            return number(value, places)
        self.deeper()
        node = self.atom()
        self.depth -= 1
        return node

    def call(self, name: str) -> Node:
        r"""A function's value: ``\sin^2 x``, ``\log_2(8)``, ``sqrt(2)``, ``\sin 2x \cos x``."""
        if name in ("sqrt", "cbrt"):
            return Node("root", (self.argument(), number(2 if name == "sqrt" else 3)))
        power = base = None
        while self.token.text in ("^", "_", "**"):
            if self.take().text == "_":
                base = self.base()
            else:
                power = self.exponent()
        arguments = self.arguments()
        if power == Node("neg", (number(1),)) and ("arc" + name) in FUNCTIONS:
            name, power = "arc" + name, None
        if base is not None:
            if name != "log":
                raise UnreadableError(f"a subscript of {name}")
            arguments.append(base)
        node = Node("call", (name, *arguments))
        return node if power is None else Node("pow", (node, power))

    def base(self) -> Node:
        """The base of a logarithm: a group, or one digit or letter."""
        if self.token.kind == "number" and len(self.token.text) > 1 and self.token.text != "10":
            return self.argument(of_fraction=True)
        return self.argument()

    def arguments(self) -> list[Node]:
        """What a function is applied to: a bracket, or the factors up to the next function."""
        for opening, closing in (("(", ")"), ("{", "}"), ("[", "]"), (r"\{", r"\}")):
            if self.skip(opening):
                items, _ = self.items()
                self.expect(closing)
                return items
        factors = [self.power()]
        while self.starts_operand(factors[-1]) and not self.is_function():
            factors.append(self.power())
        return [factors[0] if len(factors) == 1 else Node("mul", tuple(factors))]

    def is_function(self) -> bool:
        """Whether the next token is a function's name or an opening bracket."""
        text = self.token.text
        return text.lstrip("\\") in FUNCTIONS or text in ("(", "|")

    def big(self, name: str) -> Node:
        """A sum, product, integral or limit with its bounds; compared by form only."""
        bounds: list[Node] = []
        while self.token.text in ("_", "^"):
            mark = self.take().text
            bounds += [Node("sym", (mark,)), self.argument()]
        return Node("call", (name, *bounds, self.sum()))

    def bracket(self, opening: str) -> Node:
        """What stands in brackets: a group, tuple, interval, set, or a function's value."""
        self.deeper()
        node = self.inside(opening)
        self.depth -= 1
        return node

    def inside(self, opening: str) -> Node:
        """The content behind an opening bracket, and the closing one."""
        if opening in CURRENCIES:
            return Node("unit", (self.power(), CURRENCIES[opening]))
        if opening in PAIRS:
            closing, name = PAIRS[opening]
            self.open_bars += opening == "|"
            node = self.sum()
            self.open_bars -= opening == "|"
            self.expect(closing)
            return Node("call", (name, node))
        bars, self.open_bars = self.open_bars, 0
        node = self.listed(opening)
        self.open_bars = bars
        return node

    def listed(self, opening: str) -> Node:
        """The items of a bracket by what opens and closes it."""
        if opening == r"\{":
            if self.skip(r"\}"):
                return Node("const", ("empty",))
            items, _ = self.items()
            if self.skip("|", ":", r"\mid"):  # a set-builder is its condition
                items, _ = self.items()
                self.expect(r"\}")
                return items[0] if len(items) == 1 else sequence("list", items)
            self.expect(r"\}")
            return sequence("set", items)
        if opening not in ("(", "[", "{", r"\langle", r"\lbrace", r"\lbrack"):
            raise UnreadableError(f"{opening!r} is no mathematics")
        items, joints = self.items()
        closing = self.take().text
        if opening == "{" and closing == "}":
            return items[0] if len(items) == 1 else sequence("list", items)
        if opening == r"\langle" and closing == r"\rangle":
            return sequence("tuple", items)
        if opening + closing == "()":
            return items[0] if not joints else sequence("tuple", items)
        if opening + closing == "[]":
            return sequence("array", items)
        if opening + closing in ("(]", "[)") and len(items) == 2:
            return Node("interval", (opening + closing, *items))
        raise UnreadableError(f"{opening!r} closed by {closing!r}")

    def matrix(self) -> Node:
        r"""A matrix from behind ``\begin`` to its ``\end``."""
        name = self.group_name()
        if name not in MATRICES:
            raise UnreadableError(f"the environment {name!r}")
        if name == "array" and self.token.text == "{":
            self.group_name()
        rows: list[tuple[Node, ...]] = []
        while not self.skip(r"\end"):
            row = [self.relation()]
            while self.skip("&"):
                row.append(self.relation())
            rows.append(tuple(row))
            if not self.skip("\\\\") and self.token.text != r"\end":
                raise UnreadableError(f"{self.token.text!r} in a matrix")
        if self.group_name() != name or len({len(row) for row in rows}) != 1:
            raise UnreadableError("a matrix that is no rectangle")
        return Node("matrix", tuple(rows))

    def group_name(self) -> str:
        """The letters of ``{name}``."""
        self.expect("{")
        name = ""
        while not self.skip("}"):
            name += self.take().text
        return name


def _plain_letter(name: str) -> Node:
    return Node("const" if name in ("e", "i") else "sym", (name,))
