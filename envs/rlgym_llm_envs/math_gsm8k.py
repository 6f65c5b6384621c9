"""Grade-school maths word problems: GSM8K, a file in its layout, or the starter problems."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from rlgym_llm.env import TextEnv
from rlgym_llm.errors import DataError, UserError
from rlgym_llm.tasks import BadLinePolicy, GeneratorTasks, ListTasks, Row, TaskSource, file_tasks
from rlgym_llm.types import Message, Prompt, Task
from rlgym_llm_envs.prompts import SYSTEM_PROMPT
from rlgym_llm_envs.starter_problems import starter_problem, starter_row

__all__ = ["GSM8K", "STARTER", "MathGsm8kEnv", "Shot", "gsm8k_task"]

GSM8K = "openai/gsm8k"
"""data_source of the hub's problems and of local files in their layout."""
STARTER = "rlgym/starter"
"""data_source of the embedded problems."""

Shot = tuple[str, str]
"""A question and its worked solution, shown before the problem."""

Source = Literal["auto", "hub", "starter"]
Split = Literal["train", "val", "test"]
PromptStyle = Literal["chat", "string"]

_MAX_CHARS = 100_000
"""A longer question is a broken file, not a word problem."""
_CALCULATOR = re.compile(r"<<[^<>]*>>")
_MARK = "####"


class MathGsm8kEnv(TextEnv):
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
        on_bad_line: ``"skip"`` sets bad lines of ``data`` aside instead of failing.
        options: Arguments of `TextEnv`, such as ``rewards`` and ``defer_scoring``.

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

    def __init__(
        self,
        *,
        source: Source = "auto",
        data: str | Path | None = None,
        split: Split = "train",
        few_shot: int = 0,
        few_shot_data: str | Path | None = None,
        system_prompt: str = SYSTEM_PROMPT,
        prompt_style: PromptStyle = "chat",
        num_problems: int | None = None,
        seed: int = 0,
        on_bad_line: BadLinePolicy = "error",
        **options: Any,
    ) -> None:
        _check_choice("source", source, ("auto", "hub", "starter"))
        _check_choice("split", split, ("train", "val", "test"))
        _check_choice("prompt_style", prompt_style, ("chat", "string"))
        for name, number in (
            ("few_shot", few_shot),
            ("num_problems", num_problems),
            ("seed", seed),
        ):
            if number is not None and type(number) is not int:
                raise UserError(f"{name} must be a whole number, got {number!r}")
        if few_shot < 0:
            raise UserError(f"few_shot must be 0 or more, got {few_shot}")
        if data is not None and source != "auto":
            raise UserError(f"source={source!r} does not read data={str(data)!r}; give one of them")
        if num_problems is not None and source != "starter":
            raise UserError("num_problems counts starter problems; it needs source='starter'")
        solved = _solved(source, data, split, few_shot, few_shot_data, seed)
        to_task = partial(
            gsm8k_task,
            data_source=STARTER if source == "starter" else GSM8K,
            system_prompt=system_prompt,
            prompt_style=prompt_style,
            shots=tuple((task.info["question"], task.info["solution"]) for task in solved),
        )
        tasks: TaskSource
        if source == "starter":
            tasks = _starter_tasks(split, few_shot, num_problems, seed, to_task)
        elif data is not None:
            key = "--data.train" if split == "train" else "--data.val"
            tasks = file_tasks(data, to_task, on_bad_line=on_bad_line, key=key)
        else:
            tasks = ListTasks(map(to_task, _hub_rows(split)))
        if solved and source != "starter":
            tasks = _without(tasks, {task.info["question"] for task in solved})
        super().__init__(tasks=tasks, **options)

    def gold_action(self, task: Task) -> str:
        """A reply that deserves the full reward: the worked solution, or the bare answer line."""
        return _CALCULATOR.sub("", str(task.info.get("solution", f"{_MARK} {task.answer}")))


def gsm8k_task(
    row: Row,
    *,
    data_source: str = GSM8K,
    system_prompt: str = "",
    prompt_style: PromptStyle = "chat",
    shots: tuple[Shot, ...] = (),
) -> Task:
    r"""The task of one row ``{"question", "answer"}``; a row that breaks the layout raises.

    ``answer`` is the text after the last ``####``, as it stands; ``info`` holds the question and
    the whole solution. KeyError for a missing column, ValueError for anything else.

    >>> task = gsm8k_task({"question": "2 + 3 = ?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"})
    >>> task.answer, task.prompt[-1].content
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
    make_prompt = _chat_prompt if prompt_style == "chat" else _string_prompt
    return Task(
        prompt=make_prompt(question, system_prompt, shots),
        answer=answer.strip(),
        data_source=data_source,
        info={"question": question, "solution": solution},
    )


def _chat_prompt(question: str, system_prompt: str, shots: tuple[Shot, ...]) -> Prompt:
    messages = [Message(role="system", content=system_prompt)] if system_prompt else []
    for asked, solution in shots:
        messages.append(Message(role="user", content=asked))
        messages.append(Message(role="assistant", content=_CALCULATOR.sub("", solution)))
    return (*messages, Message(role="user", content=question))


def _string_prompt(question: str, system_prompt: str, shots: tuple[Shot, ...]) -> Prompt:
    parts = [system_prompt] if system_prompt else []
    for asked, solution in shots:
        parts.append(f"Question: {asked}\nAnswer: {_CALCULATOR.sub('', solution)}")
    return "\n\n".join((*parts, f"Question: {question}\nAnswer:"))


def _solved(
    source: Source,
    data: str | Path | None,
    split: Split,
    few_shot: int,
    few_shot_data: str | Path | None,
    seed: int,
) -> list[Task]:
    """The solved problems to show, as bare tasks."""
    if not few_shot:
        return []
    rows: TaskSource
    if few_shot_data is not None:
        rows = file_tasks(few_shot_data, gsm8k_task, key="few_shot_data")
    elif source == "starter":
        rows = _starter_tasks("train", 0, few_shot, seed, gsm8k_task)
    elif data is None:
        rows = ListTasks(map(gsm8k_task, _hub_rows("train")[:few_shot]))
    elif split == "train":
        rows = file_tasks(data, gsm8k_task, key="--data.train")
    else:
        raise UserError(
            f"few_shot={few_shot} needs training problems, and {data} holds the {split} split: "
            "give few_shot_data=<training file>"
        )
    if len(rows) < few_shot:
        raise UserError(f"few_shot={few_shot}, but there are only {len(rows)} solved problems")
    return [rows[index] for index in range(few_shot)]


def _without(tasks: TaskSource, questions: set[str]) -> TaskSource:
    """The tasks but those that are shown solved."""
    every = (tasks[index] for index in range(len(tasks)))
    return ListTasks(task for task in every if task.info["question"] not in questions)


def _starter_tasks(
    split: Split, few_shot: int, num_problems: int | None, seed: int, to_task: Any
) -> TaskSource:
    """Starter problems, after those that are shown solved; val and test are one split."""
    is_train = split == "train"
    make = partial(
        _starter_task,
        split="train" if is_train else "val",
        num_skipped=few_shot if is_train else 0,
        to_task=to_task,
    )
    default = 4096 if is_train else 200
    return GeneratorTasks(
        make, num_tasks=default if num_problems is None else num_problems, seed=seed
    )


def _starter_task(index: int, seed: int, *, split: str, num_skipped: int, to_task: Any) -> Task:
    task: Task = to_task(starter_row(starter_problem(num_skipped + index, split=split, seed=seed)))
    return task


def _hub_rows(split: Split) -> list[dict[str, Any]]:
    """Rows of ``openai/gsm8k`` from the hub or its cache; whatever fails there is one DataError."""
    key = "--data.train" if split == "train" else "--data.val"
    ways_out = f"give a local file with {key}, or take the embedded problems with source='starter'"
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataError(
            f"{GSM8K} needs the package datasets (pip install 'rlgym-llm[train]'): {ways_out}"
        ) from error
    # The hub client tells of every retry; the user gets one line when all have failed.
    client_log = logging.getLogger("huggingface_hub")
    level = client_log.level
    client_log.setLevel(logging.ERROR)
    try:
        dataset = load_dataset(GSM8K, "main", split="train" if split == "train" else "test")
        return list(dataset)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{GSM8K} cannot be had from the hub ({reason}): {ways_out}") from error
    finally:
        client_log.setLevel(level)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
