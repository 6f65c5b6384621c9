"""The lowest level of the grammar: numbers, names, functions, brackets, matrices."""

from __future__ import annotations

from fractions import Fraction

from rlgym_llm_rewards.math.parsing.brackets import Brackets
from rlgym_llm_rewards.math.parsing.nodes import Node, number
from rlgym_llm_rewards.math.parsing.tokens import Token, UnreadableError, read_number
from rlgym_llm_rewards.math.parsing.units import CURRENCIES, PREFIXED, UNITS
from rlgym_llm_rewards.math.parsing.vocabulary import (
    ACCENTS,
    BIG,
    BINOMIALS,
    CALLABLE_LETTERS,
    CONSTANTS,
    FRACTIONS,
    FUNCTIONS,
    GREEK,
    PAIRS,
    SETS,
    TRIGONOMETRIC,
    WORD_CONSTANTS,
)

__all__ = ["Atoms"]


class Atoms(Brackets):
    """Reads one operand; the levels above it are the `Parser`'s."""

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
        self.position, self.tokens[start : start + len(ahead)] = start, ahead
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
        if text in PREFIXED and self.token.kind == "number":
            return Node("unit", (self.power(), UNITS.get(text, "$")))
        if len(text) > 3:
            raise UnreadableError(f"the word {text!r}")
        # A product of letters: what follows, such as an exponent, is the last one's.
        rest = [Token("word", name, False) for name in text[1:]]
        self.tokens[self.position : self.position] = rest
        return self.letter(text[0])

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
        if self.token.text == "_":
            return self.subscripted(name)
        return self.constant(name) or self.subscripted(name)

    def constant(self, name: str) -> Node | None:
        """The constant that a letter names, if it names one."""
        if name in self.imaginary:
            return Node("const", ("i",))
        return Node("const", ("e",)) if name == "e" else None

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

    def command(self, text: str) -> Node:
        """What a LaTeX command stands for."""
        name = text[1:]
        if text in FRACTIONS:
            return Node("div", (self.argument(of_fraction=True), self.argument(of_fraction=True)))
        if text == r"\sqrt":
            return self.root()
        if text in BINOMIALS:
            return Node("call", ("binom", *(self.argument(of_fraction=True) for _ in range(2))))
        if text in CONSTANTS:
            return Node("const", (CONSTANTS[text],))
        if name in FUNCTIONS:
            return self.call(FUNCTIONS[name])
        if text == r"\Gamma" and self.token.text == "(":
            return self.call("gamma")
        if name in GREEK:
            return self.subscripted(name)
        if text in PAIRS:
            return self.bracket(text)
        if text in CURRENCIES:
            return Node("unit", (self.power(), CURRENCIES[text]))
        if text in (r"\mathbb", r"\mathcal", r"\mathfrak", r"\mathscr"):
            letter = self.subscript()
            if text == r"\mathbb" and letter in SETS:
                return self.signed_half() if letter == "R" else Node("const", (SETS[letter],))
            return self.subscripted(letter)
        if text in (r"\angle", r"\triangle") and self.token.kind == "word":
            return Node("call", (name, Node("sym", (self.take().text,))))
        if text in ACCENTS:
            return Node("call", (ACCENTS[text], self.argument()))
        if text in BIG:
            return self.big(BIG[text])
        if text == r"\begin":
            return self.matrix()
        return self.bracket(text)

    def signed_half(self) -> Node:
        r"""The real numbers, or those of one sign: ``\mathbb{R}^+``."""
        zero, infinity = number(0), Node("const", ("oo",))
        ahead = "".join(token.text for token in self.tokens[self.position : self.position + 4])
        for sign, ends in (("+", (zero, infinity)), ("-", (Node("neg", (infinity,)), zero))):
            for spelling in (f"^{sign}", f"^{{{sign}}}", f"_{sign}", f"_{{{sign}}}"):
                if ahead.startswith(spelling):
                    self.position += len(spelling)
                    return Node("interval", ("()", *ends))
        return Node("const", ("reals",))

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
        self.deeper()
        power = base = None
        while self.token.text in ("^", "_", "**"):
            if self.take().text == "_":
                base = self.base()
            else:
                power = self.exponent()
        outer, self.in_trigonometry = self.in_trigonometry, name in TRIGONOMETRIC
        arguments = self.arguments()
        self.in_trigonometry = outer
        if power == Node("neg", (number(1),)) and ("arc" + name) in FUNCTIONS:
            name, power = "arc" + name, None
        if base is not None:
            if name != "log":
                raise UnreadableError(f"a subscript of {name}")
            arguments.append(base)
        self.depth -= 1
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
        """A sum, product, integral or limit with its bounds."""
        self.deeper()
        bounds: dict[str, Node] = {}
        while self.token.text in ("_", "^"):
            mark = self.take().text
            bounds[mark] = self.argument()
        marked: list[Node] = []
        for mark in sorted(bounds, reverse=True):  # the lower one first
            marked += [Node("sym", (mark,)), bounds[mark]]
        body = self.sum()
        self.depth -= 1
        return Node("call", (name, *marked, body))
