"""A place in a list of tokens, and what each level of the grammar owes the others."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rlgym_llm_rewards.math.parsing.nodes import Node
from rlgym_llm_rewards.math.parsing.tokens import Comma, LimitError, Token, UnreadableError

__all__ = ["MAX_DEPTH", "Cursor"]

MAX_DEPTH = 40
"""Deepest nesting that is read."""


class Cursor(ABC):
    """Tokens and how far they are read."""

    def __init__(self, tokens: list[Token], comma: Comma, imaginary: str) -> None:
        self.tokens = tokens
        self.comma = comma
        self.imaginary = imaginary
        self.position = 0
        self.depth = 0
        self.open_bars = 0
        self.in_set = False
        self.in_trigonometry = False

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
