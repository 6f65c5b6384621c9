"""Grade-school maths word problems: GSM8K, a file in its layout, or the starter problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from rlgym_llm.check_argument import check_choice, check_number
from rlgym_llm.errors import UserError
from rlgym_llm.prompt_frame import PromptStyle
from rlgym_llm.single_turn import SingleTurnEnv
from rlgym_llm.splits import Split, check_split
from rlgym_llm.tasks import ListTasks, Row, TaskSource
from rlgym_llm.types import Task
from rlgym_llm_envs.gsm8k_rows import gsm8k_hub_rows, gsm8k_problem, gsm8k_task, starter_tasks
from rlgym_llm_envs.prompts import SYSTEM_PROMPT

__all__ = ["MathGsm8kEnv", "gsm8k_problem", "gsm8k_task"]

Source = Literal["auto", "hub", "starter"]

_CALCULATOR = re.compile(r"<<[^<>]*>>")


class MathGsm8kEnv(SingleTurnEnv):
    """Single-turn maths word problems; a good reply ends in a line ``#### <number>``.

    Args:
        source: ``"auto"`` takes the file ``data`` where one is given, else the hub or its cache,
            and fails where neither can be had; ``"hub"`` is ``openai/gsm8k``; ``"starter"`` are
            the embedded problems, whose data_source is ``rlgym/starter``.
        data: A JSONL or parquet file in GSM8K's layout, ``{"question", "answer"}``.
        split: ``"train"``, ``"val"`` or ``"test"``; ``"val"`` is the hub's test split.
        few_shot: So many solved training problems stand before each problem; none of them is
            among the tasks. They come from the hub's or the starter's training problems, or from
            ``few_shot_data``; a training file gives its own first rows unless told otherwise.
        few_shot_data: File of the solved problems, in the same layout.
        system_prompt: What the model is told first; empty for nothing.
        prompt_style: ``"chat"`` gives messages, ``"string"`` one string for base models.
        num_problems: Number of starter problems; 4096 to train on and 200 otherwise by default.
        seed: Seed of the starter problems.
        options: Arguments of `SingleTurnEnv`, such as ``rewards`` and ``on_bad_line``.

    Raises UserError for arguments that contradict each other, and DataError, with file and line,
    for data that cannot be used.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {
            "math": {"reward": "math", "weight": 1.0, "options": {"extraction": "strict"}},
            "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
            "lenient": {"reward": "math", "weight": 0.0, "options": {"extraction": "lenient"}},
        }
    }
    accuracy: ClassVar[str | None] = "math"
    data_files: ClassVar[tuple[str, ...]] = ("data", "few_shot_data")

    def __init__(
        self,
        *,
        source: Source = "auto",
        data: str | Path | None = None,
        split: Split = "train",
        few_shot: int = 0,
        few_shot_data: str | Path | TaskSource | None = None,
        system_prompt: str = SYSTEM_PROMPT,
        prompt_style: PromptStyle = "chat",
        num_problems: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        check_choice("source", source, get_args(Source))
        check_split(split)
        check_choice("prompt_style", prompt_style, get_args(PromptStyle))
        check_number("few_shot", few_shot, least=0)
        check_number("seed", seed)
        check_number("num_problems", num_problems, least=1)
        if data is not None and source != "auto":
            raise UserError(f"source={source!r} does not read data={str(data)!r}; give one of them")
        if num_problems is not None and source != "starter":
            raise UserError("num_problems counts starter problems; it needs source='starter'")
        if options.pop("tasks", None) is not None:
            raise UserError("math-gsm8k brings tasks of its own; give data=FILE or a source")
        tasks: TaskSource | None = None
        lacks_shots = few_shot > 0 and few_shot_data is None
        if source == "starter":
            tasks = starter_tasks(split, few_shot, num_problems, seed)
            few_shot_data = (
                starter_tasks("train", 0, few_shot, seed) if lacks_shots else few_shot_data
            )
        elif data is None:
            tasks = ListTasks(map(gsm8k_problem, gsm8k_hub_rows(split)))
            if lacks_shots and split != "train":
                few_shot_data = ListTasks(map(gsm8k_problem, gsm8k_hub_rows("train")[:few_shot]))
        elif lacks_shots and split != "train":
            raise UserError(
                f"few_shot={few_shot} needs training problems, and {data} holds the {split} split: "
                "give few_shot_data=<training file>"
            )
        super().__init__(
            tasks=tasks,
            data=data,
            split=split,
            few_shot=few_shot,
            few_shot_data=few_shot_data,
            system_prompt=system_prompt,
            prompt_style=prompt_style,
            **options,
        )

    @staticmethod
    def to_task(row: Row) -> Task:
        """The task of one row, `gsm8k_problem`."""
        return gsm8k_problem(row)

    def gold_action(self, task: Task) -> str:
        """A reply that deserves the full reward: the worked solution, or the bare answer line."""
        return _CALCULATOR.sub("", str(task.info.get("solution", f"#### {task.answer}")))
