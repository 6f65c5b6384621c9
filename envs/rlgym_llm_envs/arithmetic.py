"""Sums in five levels, drawn at random."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from rlgym_llm.drawn_tasks import Draw
from rlgym_llm.errors import UserError
from rlgym_llm.types import Task
from rlgym_llm_envs.generated import GeneratedEnv
from rlgym_llm_envs.prompts import SYSTEM_PROMPT

__all__ = ["LEVELS", "ArithmeticEnv"]

LEVELS: Final = (1, 2, 3, 4, 5)
"""One digit; two digits; products; three terms; brackets."""

_Tree = int | tuple[str, "_Tree", "_Tree"]

_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


class ArithmeticEnv(GeneratedEnv):
    """Sums of whole numbers, in five levels; a good reply ends in a line ``#### <number>``.

    The level of a problem stands in ``task.info["level"]``; several levels take turns. A sum that
    is only repeated is no answer: it has to be worked out. Nothing is divided, since a quotient
    such as 84/7 is a number as it stands.

    Args:
        level: A level from 1 to 5, or several; None takes all five.
        system_prompt: What the model is told first; empty for nothing.
        options: Arguments of `GeneratedEnv`: ``split``, ``num_problems``, ``seed``, ``few_shot``,
            ``prompt_style``, ``rewards``, ``defer_scoring``, ``render_mode``.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {
            "math": {
                "reward": "math",
                "weight": 1.0,
                "options": {"extraction": "strict", "form": "evaluated"},
            },
            "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
        }
    }
    accuracy: ClassVar[str | None] = "math"

    def __init__(
        self,
        *,
        level: int | Sequence[int] | None = None,
        system_prompt: str = SYSTEM_PROMPT,
        **options: Any,
    ) -> None:
        levels = LEVELS if level is None else (level,) if isinstance(level, int) else tuple(level)
        if not levels or any(type(one) is not int or one not in LEVELS for one in levels):
            raise UserError(f"level must be one or several of 1 to 5, got {level!r}")
        self.levels = levels
        super().__init__(system_prompt=system_prompt, **options)

    def drawer(self) -> Draw:
        """Draws a sum of the level whose turn it is."""
        return partial(_draw, levels=self.levels)

    def gold_action(self, task: Task) -> str:
        """The sum worked out step by step, or the bare answer line for a task from elsewhere."""
        return str(task.info.get("solution", f"#### {task.answer}"))


def _draw(index: int, rng: random.Random, *, levels: Sequence[int]) -> Task:
    level = levels[index % len(levels)]
    tree = _TREES[level](rng)
    steps = list(_steps(tree))
    return Task(
        prompt=f"What is {_text(tree)}?",
        answer=str(_value(tree)),
        data_source="rlgym/arithmetic",
        info={"level": level, "solution": "\n".join((*steps, f"#### {_value(tree)}"))},
    )


def _value(tree: _Tree) -> int:
    if isinstance(tree, int):
        return tree
    return _OPERATIONS[tree[0]](_value(tree[1]), _value(tree[2]))


def _text(tree: _Tree) -> str:
    """The sum as it is written, with brackets where they are needed."""
    if isinstance(tree, int):
        return str(tree)
    sign, left, right = tree
    return f"{_part(left, sign)} {sign} {_part(right, sign)}"


def _part(tree: _Tree, sign: str) -> str:
    is_sum = isinstance(tree, tuple) and tree[0] in "+-"
    return f"({_text(tree)})" if is_sum and sign == "*" else _text(tree)


def _steps(tree: _Tree) -> Iterator[str]:
    """``12 + 3 * 4`` gives ``3 * 4 = 12`` and ``12 + 12 = 24``."""
    if isinstance(tree, tuple):
        sign, left, right = tree
        yield from _steps(left)
        yield from _steps(right)
        yield f"{_value(left)} {sign} {_value(right)} = {_value(tree)}"


def _plain(rng: random.Random, low: int, high: int) -> _Tree:
    a, b = rng.randint(low, high), rng.randint(low, high)
    return ("+", a, b) if rng.random() < 0.5 else ("-", max(a, b), min(a, b))


def _times(rng: random.Random) -> _Tree:
    return ("*", rng.randint(2, 12), rng.randint(2, 99))


def _three(rng: random.Random) -> _Tree:
    sign, a = rng.choice("+-"), rng.randint(2, 99)
    return (sign, a, _times(rng)) if rng.random() < 0.5 else (sign, _times(rng), a)


def _brackets(rng: random.Random) -> _Tree:
    signs = rng.choice("+-"), rng.choice("+-")
    left, right = ((sign, rng.randint(2, 30), rng.randint(2, 30)) for sign in signs)
    return ("*", left, right)


_TREES: Final[Mapping[int, Callable[[random.Random], _Tree]]] = {
    1: partial(_plain, low=0, high=9),
    2: partial(_plain, low=10, high=99),
    3: _times,
    4: _three,
    5: _brackets,
}
