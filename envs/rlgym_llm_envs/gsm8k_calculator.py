"""Grade-school maths word problems with a calculator at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from rlgym_llm.env import TurnOutcome
from rlgym_llm.splits import Split
from rlgym_llm.tasks import BadLinePolicy
from rlgym_llm.tool_env import ToolEnv
from rlgym_llm.tools.parse import write_tool_calls
from rlgym_llm.tools.tool import Tool
from rlgym_llm.tools.tool_call import ToolCall
from rlgym_llm.types import Action, Task
from rlgym_llm_envs.calculator import calculate, calculator
from rlgym_llm_envs.math_gsm8k import MathGsm8kEnv, Source
from rlgym_llm_envs.prompts import SYSTEM_PROMPT

__all__ = ["Gsm8kCalculatorEnv"]

_MARKED: Final = re.compile(r"<<([^<>=]{1,200})=[^<>]*>>")
_WRITTEN: Final = re.compile(r"((?<![\d.])[\d.]+(?: [-+*/] [\d.]+)+) = (?=\d)")


class Gsm8kCalculatorEnv(ToolEnv):
    """The problems of math-gsm8k; a turn may call the calculator, and the last one answers.

    The environment's own reward is 1.0 where an episode that ended in an answer got at least one
    result out of the calculator, and 0.0 where it got none.

    Args:
        source: As in `MathGsm8kEnv`, like the next five.
        data: A JSONL or parquet file in GSM8K's layout.
        split: ``"train"``, ``"val"`` or ``"test"``.
        system_prompt: What the model is told before the words about the calculator.
        num_problems: Number of starter problems.
        seed: Seed of the starter problems.
        on_bad_line: ``"skip"`` sets bad lines of ``data`` aside instead of failing.
        options: Arguments of `ToolEnv`, such as ``max_calls``, ``tool_style`` and ``rewards``.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {
            "math": {"reward": "math", "weight": 1.0, "options": {"extraction": "strict"}},
            "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
            "calculator": {"reward": "env", "weight": 0.1},
        }
    }
    accuracy: ClassVar[str | None] = "math"
    gold_reward: ClassVar[float | None] = 1.3
    starter: ClassVar[str | None] = "gsm8k-calculator"

    def __init__(
        self,
        *,
        source: Source = "auto",
        data: str | Path | None = None,
        split: Split = "train",
        system_prompt: str = SYSTEM_PROMPT,
        num_problems: int | None = None,
        seed: int = 0,
        on_bad_line: BadLinePolicy = "error",
        **options: Any,
    ) -> None:
        problems = MathGsm8kEnv(
            source=source,
            data=data,
            split=split,
            system_prompt=system_prompt,
            num_problems=num_problems,
            seed=seed,
            on_bad_line=on_bad_line,
        )
        # What it does is bounded, so it needs no thread with a deadline.
        tools = [Tool(calculator, timeout_s=None)]
        super().__init__(tasks=problems.tasks, tools=tools, **options)

    def tool_instructions(self) -> str:
        """One example says it all, in fewer tokens than a schema."""
        return (
            "A calculator works out expressions exactly. Call it like this, and its result is the "
            f"next message:\n{self._call('12 * (3 + 4.5)')}"
        )

    def final(self, action: Action) -> TurnOutcome:
        """Over; the own reward tells whether the calculator gave a result."""
        has_result = self.state.num_calls > self.state.num_errors
        return TurnOutcome(env_reward=float(has_result), terminated=True)

    def gold_action(self, task: Task) -> str:
        """The worked solution, broken off for a call wherever it says what is calculated."""
        turns = list(self._gold_turns(task))
        return turns[min(len(self.turns), len(turns) - 1)]

    def _gold_turns(self, task: Task) -> Iterator[str]:
        solution = str(task.info.get("solution", f"#### {task.answer}"))
        pattern = _MARKED if _MARKED.search(solution) else _WRITTEN
        end = num_calls = 0
        for match in pattern.finditer(solution):
            is_last = self.max_calls is not None and num_calls == self.max_calls
            if is_last or not _can_calculate(match[1]):
                continue
            yield f"{_plain(solution[end : match.end()])}\n{self._call(match[1])}"
            end = match.end()
            num_calls += 1
        if not num_calls:
            yield self._call(str(task.answer))
        yield _plain(solution[end:])

    def _call(self, expression: str) -> str:
        call = ToolCall(
            id="call00000", name="calculator", arguments={"expression": expression.strip()}
        )
        return write_tool_calls([call], style=self.tool_style)


def _plain(solution: str) -> str:
    """A part of a solution without its marks."""
    return _MARKED.sub("", solution).strip()


def _can_calculate(expression: str) -> bool:
    try:
        calculate(expression)
    except ValueError:
        return False
    return True
