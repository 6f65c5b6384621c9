r"""Mathematics from any file with a prompt and an answer; replies end in a ``\boxed{}``."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from rlgym_llm.drawn_tasks import Draw
from rlgym_llm.types import Task
from rlgym_llm_envs.generated import DataEnv
from rlgym_llm_envs.prompts import BOXED_PROMPT

__all__ = ["MathGenericEnv"]


class MathGenericEnv(DataEnv):
    r"""Any file with a prompt and an answer; a good reply has its answer in one ``\boxed{}``.

    The answer may be a number, LaTeX, or a whole solution that ends in a box, as in MATH
    (``columns={"prompt": "problem", "answer": "solution"}``): the math reward reads it. The starter
    problems are linear equations, right triangles and shared work; their data_source is
    ``rlgym/math-generic``.

    Args:
        system_prompt: What the model is told first; empty for nothing.
        options: Arguments of `DataEnv`, such as ``data`` and ``columns``.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {
            "math": {"reward": "math", "weight": 1.0, "options": {"extraction": "strict"}},
            "format": {"reward": "format", "weight": 0.2, "options": {"style": "boxed"}},
            "lenient": {"reward": "math", "weight": 0.0, "options": {"extraction": "lenient"}},
        }
    }
    accuracy: ClassVar[str | None] = "math"
    data_files: ClassVar[tuple[str, ...]] = ("data", "few_shot_data")

    def __init__(self, *, system_prompt: str = BOXED_PROMPT, **options: Any) -> None:
        super().__init__(system_prompt=system_prompt, **options)

    def drawer(self) -> Draw:
        """Draws an equation, a right triangle, or two who share their work."""
        return _draw

    def gold_action(self, task: Task) -> str:
        """The answer where it is a solution with a box, else the answer in a box."""
        answer = super().gold_action(task)
        return answer if "\\boxed" in answer else f"\\boxed{{{answer}}}"


# Repeating the question earns nothing: no problem holds an expression that equals its answer.
def _draw(index: int, rng: random.Random) -> Task:
    prompt, answer = (_equation, _triangle, _shared_work)[index % 3](rng)
    return Task(prompt=prompt, answer=answer, data_source="rlgym/math-generic")


def _equation(rng: random.Random) -> tuple[str, str]:
    a, x, b = rng.randint(2, 12), rng.randint(-9, 9), rng.randint(1, 30)
    return f"Solve ${a}x + {b} = {a * x + b}$ for $x$.", str(x)


def _triangle(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(1, 20), rng.randint(1, 20)
    square = a * a + b * b
    root = math.isqrt(square)
    answer = str(root) if root * root == square else f"\\sqrt{{{square}}}"
    return f"A right triangle has legs of ${a}$ and ${b}$. How long is its hypotenuse?", answer


def _shared_work(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(2, 20), rng.randint(2, 20)
    top, bottom = Fraction(a * b, a + b).as_integer_ratio()
    return (
        f"One tap fills a tank in ${a}$ hours and another in ${b}$ hours. In how many hours do "
        "both together fill it?",
        str(top) if bottom == 1 else f"\\frac{{{top}}}{{{bottom}}}",
    )
