"""What stands in brackets: groups, tuples, intervals, sets, matrices, absolute values."""

from __future__ import annotations

from rlgym_llm_rewards.math.parsing.cursor import Cursor
from rlgym_llm_rewards.math.parsing.nodes import Node, sequence
from rlgym_llm_rewards.math.parsing.tokens import UnreadableError
from rlgym_llm_rewards.math.parsing.units import CURRENCIES
from rlgym_llm_rewards.math.parsing.vocabulary import MATRICES, PAIRS

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
        outer = self.open_bars, self.in_set
        self.open_bars, self.in_set = 0, False
        node = self.listed(opening)
        self.open_bars, self.in_set = outer
        return node

    def listed(self, opening: str) -> Node:
        """The items of a bracket by what opens and closes it."""
        if opening == r"\{":
            if self.skip(r"\}"):
                return Node("const", ("empty",))
            return self.set_behind()
        if opening not in ("(", "[", "]", "{", r"\langle"):
            raise UnreadableError(f"{opening!r} is no mathematics")
        items, joints = self.items()
        if opening == "{" and self.token.text in (r"\over", r"\choose"):
            is_quotient = self.take().text == r"\over"
            pair = (*items, *self.items()[0])
            self.expect("}")
            if len(pair) != 2:
                raise UnreadableError("a list above or below a line")
            return Node("div", pair) if is_quotient else Node("call", ("binom", *pair))
        closing = self.take().text
        if opening in ("(", "[", "]") and (opening == "]" or closing == "[") and len(items) == 2:
            # Open ends may turn outwards, as ISO 31-11 writes them: [0, 1[.
            ends = opening.replace("]", "(") + closing.replace("[", ")")
            if ends in ("()", "(]", "[)"):
                return Node("interval", (ends, *items))
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

    def set_behind(self) -> Node:
        """A set by its elements, or by a condition on a real variable; other ones by form only."""
        outer, self.in_set = self.in_set, True
        items, _ = self.items()
        self.in_set = outer
        if self.skip("|", ":", r"\mid"):
            conditions, _ = self.items()
            self.expect(r"\}")
            condition = conditions[0] if len(conditions) == 1 else sequence("list", conditions)
            element = items[0]
            domain = Node("const", ("reals",))
            if element.head == "sym" or (element.head == "rel" and element.args[2:] == (domain,)):
                return condition
            return Node("call", ("set", element, condition))
        self.expect(r"\}")
        return sequence("set", items)

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
            if self.skip("\\\\", r"\cr"):
                self.skip_length()
            elif self.token.text != r"\end":
                raise UnreadableError(f"{self.token.text!r} in a matrix")
        if self.group_name() != name or len({len(row) for row in rows}) != 1:
            raise UnreadableError("a matrix that is no rectangle")
        matrix = Node("matrix", tuple(rows))
        return Node("call", ("det", matrix)) if name == "vmatrix" else matrix

    def skip_length(self) -> None:
        """Takes the ``[4pt]`` that may follow the end of a row."""
        ahead = self.tokens[self.position : self.position + 4]
        if [t.text for t in ahead[::3]] == ["[", "]"] and ahead[2].kind == "word":
            self.position += 4

    def group_name(self) -> str:
        """The letters of ``{name}``."""
        self.expect("{")
        name = ""
        while not self.skip("}"):
            name += self.take().text
        return name
