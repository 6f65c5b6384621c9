"""What stands in brackets: groups, tuples, intervals, sets, matrices, absolute values."""

from __future__ import annotations

from rlgym_llm_rewards.math.cursor import Cursor
from rlgym_llm_rewards.math.nodes import Node, sequence
from rlgym_llm_rewards.math.tokens import UnreadableError
from rlgym_llm_rewards.math.vocabulary import CURRENCIES, MATRICES, PAIRS

__all__ = ["Brackets"]


class Brackets(Cursor):
    """Reads a bracket from behind what opens it."""

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
