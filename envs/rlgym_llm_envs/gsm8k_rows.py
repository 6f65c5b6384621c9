"""The rows of GSM8K and of the starter problems, and the task that each of them is."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from rlgym_llm.prompt_frame import PromptFrame, PromptStyle, frame_task
from rlgym_llm.splits import Split, drawn_size, drawn_split
from rlgym_llm.tasks import GeneratorTasks, Row, TaskSource
from rlgym_llm.types import Task
from rlgym_llm_envs.hub_rows import load_from_hub
from rlgym_llm_envs.starter_problems import starter_problem, starter_row

__all__ = ["GSM8K", "STARTER", "gsm8k_hub_rows", "gsm8k_problem", "gsm8k_task", "starter_tasks"]

GSM8K: Final = "openai/gsm8k"
"""data_source of the hub's problems and of local files in their layout."""
STARTER: Final = "rlgym/starter"
"""data_source of the embedded problems."""

_MAX_CHARS: Final = 100_000
"""A longer question is a broken file, not a word problem."""
_MARK: Final = "####"


def gsm8k_problem(row: Row, *, data_source: str = GSM8K) -> Task:
    r"""The task of one row ``{"question", "answer"}``, which asks the bare question.

    ``answer`` is the text after the last ``####``, as it stands; ``info`` holds the question and
    the whole solution. KeyError for a missing column, ValueError for anything else.

    >>> task = gsm8k_problem({"question": "2 + 3 = ?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"})
    >>> task.answer, task.prompt
    ('5', '2 + 3 = ?')
    """
    question, solution = row["question"], row["answer"]
    for column, text in (("question", question), ("answer", solution)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"column {column!r} must be text that is not empty, got {text!r}")
        if len(text) > _MAX_CHARS:
            raise ValueError(f"column {column!r} has {len(text)} characters, over {_MAX_CHARS}")
    _, mark, answer = solution.rpartition(_MARK)
    if not (mark and re.search(r"\d", answer)):
        raise ValueError(f"column 'answer' must end in '{_MARK} <number>', got {solution[-40:]!r}")
    return Task(
        prompt=question,
        answer=answer.strip(),
        data_source=data_source,
        info={"question": question, "solution": solution},
    )


def gsm8k_task(
    row: Row,
    *,
    data_source: str = GSM8K,
    system_prompt: str = "",
    prompt_style: PromptStyle = "chat",
) -> Task:
    """`gsm8k_problem` as a model is asked it, with the same errors."""
    frame = PromptFrame(system_prompt=system_prompt, style=prompt_style)
    return frame_task(gsm8k_problem(row, data_source=data_source), frame)


def starter_tasks(
    split: Split, num_skipped: int, num_problems: int | None, seed: int
) -> TaskSource:
    """Starter problems, after those of the training split that are shown solved."""
    num_skipped = num_skipped if split == "train" else 0
    make = partial(_starter_task, split=drawn_split(split), num_skipped=num_skipped)
    return GeneratorTasks(make, num_tasks=drawn_size(split, num_problems), seed=seed)


def _starter_task(index: int, seed: int, *, split: str, num_skipped: int) -> Task:
    problem = starter_problem(num_skipped + index, split=split, seed=seed)
    return gsm8k_problem(starter_row(problem), data_source=STARTER)


def gsm8k_hub_rows(split: Split) -> list[dict[str, Any]]:
    """Rows of ``openai/gsm8k`` from the hub or its cache; whatever fails there is one DataError."""
    key = "--data.train" if split == "train" else "--data.val"
    ways_out = f"give a local file with {key}, or take the embedded problems with source='starter'"
    hub_split = "train" if split == "train" else "test"
    return list(load_from_hub(GSM8K, GSM8K, "main", ways_out=ways_out, split=hub_split))
