"""A smoke test for pipelines: only the layout of the reply counts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final, Literal, get_args

from rlgym_llm.check_argument import check_choice
from rlgym_llm.drawn_tasks import Draw
from rlgym_llm.types import Task
from rlgym_llm_envs.generated import GeneratedEnv
from rlgym_llm_envs.prompts import BOXED_PROMPT, SYSTEM_PROMPT, THINK_ANSWER_PROMPT

__all__ = ["FormatOnlyEnv"]

Style = Literal["hash", "boxed", "think_answer"]

_PROMPTS: Final[Mapping[str, str]] = {
    "hash": SYSTEM_PROMPT,
    "boxed": BOXED_PROMPT,
    "think_answer": THINK_ANSWER_PROMPT,
}
_REPLIES: Final[Mapping[str, str]] = {
    "hash": "I think of {0}.\n#### {0}",
    "boxed": "I think of {0}. So \\boxed{{{0}}}",
    "think_answer": "<think>I think of {0}.</think>\n<answer>{0}</answer>",
}


class FormatOnlyEnv(GeneratedEnv):
    """Asks for a number and rewards the layout alone, whatever the number: a smoke test.

    A pipeline that learns anything learns this within minutes, and the reward hides no mathematics
    that could fail.

    Args:
        style: The layout asked for and rewarded: ``"hash"`` (``#### <number>``), ``"boxed"`` or
            ``"think_answer"``.
        system_prompt: What the model is told first; None tells it the style.
        options: Arguments of `GeneratedEnv`: ``split``, ``num_problems``, ``seed``, ``few_shot``,
            ``prompt_style``, ``rewards``, ``defer_scoring``, ``render_mode``.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {"format": {"reward": "format", "weight": 1.0, "options": {"style": "hash"}}}
    }
    accuracy: ClassVar[str | None] = None

    def __init__(
        self,
        *,
        style: Style = "hash",
        system_prompt: str | None = None,
        rewards: Any = None,
        **options: Any,
    ) -> None:
        check_choice("style", style, get_args(Style))
        self.style = style
        if rewards is None:
            component = {
                **self.default_rewards["components"]["format"],
                "options": {"style": style},
            }
            rewards = {"components": {"format": component}}
        super().__init__(
            system_prompt=_PROMPTS[style] if system_prompt is None else system_prompt,
            rewards=rewards,
            **options,
        )

    def drawer(self) -> Draw:
        """Draws a number to ask for, under the name of the style."""
        return partial(_draw, style=self.style)

    def gold_action(self, task: Task) -> str:
        """A reply in the layout asked for."""
        return _REPLIES[self.style].format(task.info.get("number", 7))


def _draw(index: int, rng: random.Random, *, style: str) -> Task:
    number = rng.randint(0, 9999)
    return Task(
        prompt=f"Name the number {number}.",
        data_source="rlgym/format-only",
        info={"number": number, "style": style},
    )
