"""The numbers game: reach a target with the given numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from rlgym_llm.drawn_tasks import Draw
from rlgym_llm.env import TurnOutcome
from rlgym_llm.errors import UserError
from rlgym_llm.types import Action, Task
from rlgym_llm_envs.exact_expression import is_solution
from rlgym_llm_envs.generated import GeneratedEnv
from rlgym_llm_envs.prompts import ANSWER_TAG_PROMPT

__all__ = ["CountdownEnv", "answered_expression"]

_ANSWER: Final = re.compile(r"<answer>([^<>]*)</answer>")
_MAX_NUMBER: Final = 99
_MAX_TARGET: Final = 999
_MAX_TRIES: Final = 1000


class CountdownEnv(GeneratedEnv):
    """Reach the target with ``+ - * /`` and brackets, each number used at most once.

    The last ``<answer>...</answer>`` behind the thinking counts. Its expression is read by a
    grammar of its own and worked out in exact fractions: nothing is executed. The environment gives
    1.0 where it is right and 0.0 where not, as the component ``env``. ``task.info`` holds
    ``numbers``, ``target``, ``solution`` and ``level``, which is 1 for three numbers, 2 for four
    and so on.

    Args:
        num_numbers: How many numbers, from 3 to 6, or several such, which take turns.
        use_all: Ask for every number exactly once.
        system_prompt: What the model is told first; empty for nothing.
        options: Arguments of `GeneratedEnv`: ``split``, ``num_problems``, ``seed``, ``few_shot``,
            ``prompt_style``, ``rewards``, ``defer_scoring``, ``render_mode``.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {
            "env": {"reward": "env", "weight": 1.0},
            "format": {
                "reward": "regex",
                "weight": 0.1,
                "options": {
                    "pattern": r"(?:(?!</?answer>).)*<answer>[^<>]+</answer>\s*",
                    "mode": "fullmatch",
                },
            },
        }
    }
    accuracy: ClassVar[str | None] = "env"
    gold_reward: ClassVar[float | None] = 1.1

    def __init__(
        self,
        *,
        num_numbers: int | Sequence[int] = (3, 4),
        use_all: bool = False,
        system_prompt: str = ANSWER_TAG_PROMPT,
        **options: Any,
    ) -> None:
        counts = (num_numbers,) if isinstance(num_numbers, int) else tuple(num_numbers)
        if not counts or any(type(count) is not int or not 3 <= count <= 6 for count in counts):
            raise UserError(f"num_numbers must be one or several of 3 to 6, got {num_numbers!r}")
        self.counts = counts
        self.use_all = bool(use_all)
        super().__init__(system_prompt=system_prompt, **options)

    def drawer(self) -> Draw:
        """Draws numbers and a target that can be reached with all of them."""
        return partial(_draw, counts=self.counts, use_all=self.use_all)

    def advance(self, action: Action) -> TurnOutcome:
        """1.0 for an expression that reaches the target, else 0.0; the task is over."""
        info = self.task.info
        if not {"numbers", "target"} <= info.keys():
            raise UserError(f"task {self.task.id}: a countdown task has info numbers and target")
        expression = answered_expression(action.text)
        is_right = expression is not None and is_solution(
            expression, info["numbers"], info["target"], use_all=self.use_all
        )
        return TurnOutcome(env_reward=float(is_right), terminated=True)

    def gold_action(self, task: Task) -> str:
        """The expression that the target was drawn from."""
        solution = task.info["solution"]
        return f"{solution} is {task.info['target']}.\n<answer>{solution}</answer>"


def answered_expression(text: str) -> str | None:
    """What stands in the last answer tags behind the thinking, None where there are none.

    >>> answered_expression("<think><answer>1</answer></think> so <answer>2 + 3</answer>")
    '2 + 3'
    """
    seen = text.rpartition("</think>")[2].partition("<think>")[0]
    found = _ANSWER.findall(seen)
    return found[-1] if found else None


def _draw(index: int, rng: random.Random, *, counts: Sequence[int], use_all: bool) -> Task:
    count = counts[index % len(counts)]
    for _ in range(_MAX_TRIES):
        numbers = sorted(rng.randint(1, _MAX_NUMBER) for _ in range(count))
        parts = [(number, str(number)) for number in numbers]
        while len(parts) > 1:
            rng.shuffle(parts)
            parts.append(_joined(rng, parts.pop(), parts.pop()))
        target, solution = parts[0]
        if 10 <= target <= _MAX_TARGET and target not in numbers:
            break
    return Task(
        prompt=f"Using the numbers {', '.join(map(str, numbers))}, each "
        f"{'exactly' if use_all else 'at most'} once, and + - * / with brackets, make {target}.",
        data_source="rlgym/countdown",
        info={
            "numbers": numbers,
            "target": target,
            "level": count - 2,
            "solution": solution.removeprefix("(").removesuffix(")"),
        },
    )


def _joined(rng: random.Random, one: tuple[int, str], other: tuple[int, str]) -> tuple[int, str]:
    """Two parts made one by an operation whose result is a whole number above 0."""
    (high, left), (low, right) = max(one, other), min(one, other)
    results = {"+": high + low, "-": high - low, "*": high * low}
    if high % low == 0:
        results["/"] = high // low
    sign = rng.choice(
        [sign for sign, value in results.items() if 0 < value <= _MAX_TARGET] or ["+"]
    )
    return results[sign], f"({left} {sign} {right})"
