"""SingleTurnEnv: one question, one answer, from any data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, get_args

from rlgym_llm.check_argument import check_choice, check_number
from rlgym_llm.counted import counted
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import UserError
from rlgym_llm.prompt_frame import FramedTasks, PromptFrame, PromptStyle
from rlgym_llm.splits import Split, check_split
from rlgym_llm.tasks import BadLinePolicy, ListTasks, Row, RowToTask, TaskSource, data_tasks
from rlgym_llm.types import Message, Prompt, Task

__all__ = ["SingleTurnEnv", "row_task"]


_FIELDS: Final = ("prompt", "answer", "data_source", "id")


class SingleTurnEnv(TextEnv):
    """One question and one answer each, from a data file, a hub's data set, or tasks of your own.

    Tasks hold the bare question; the system prompt, the solved examples and the prompt style are
    put around it here. A subclass says how a row becomes a task (`to_task`), what is rewarded
    (`default_rewards`), and what a right reply looks like (`gold_action`).

    Args:
        tasks: The problems, in place of ``data``.
        data: A data file (JSONL, JSON or parquet), or a hub's data set,
            ``hf:OWNER/NAME:CONFIG:SPLIT``.
        columns: Which column a field is read from, such as ``{"prompt": "problem"}``.
        to_task: What makes a task of a row; None takes the method `to_task`.
        on_bad_line: ``"skip"`` sets bad lines of ``data`` aside instead of failing.
        split: What the tasks are for; errors name ``--data.train`` or ``--data.val`` by it.
        system_prompt: What the model is told first; empty for nothing. A conversation that opens
            with a system message keeps its own.
        few_shot: So many solved problems stand before each problem; none of them is among the
            tasks. They are the first of ``few_shot_data``, or else of the tasks themselves.
        few_shot_data: Data of the solved problems, as in ``data``, or tasks.
        prompt_style: ``"chat"`` gives messages, ``"string"`` one text for base models,
            ``Question: ... Answer:``, ``"raw"`` the prompt as it stands.
        options: Arguments of `TextEnv`, such as ``rewards`` and ``defer_scoring``.

    Raises UserError for arguments that contradict each other, and DataError, with file and line,
    for data that cannot be used.

    >>> env = SingleTurnEnv(tasks=[Task(prompt="Say yes.", answer="yes")], system_prompt="Obey.")
    >>> observation, info = env.reset(seed=0)
    >>> [message.content for message in observation]
    ['Obey.', 'Say yes.']
    >>> env.step("yes")[1]
    1.0
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {"match": {"reward": "exact_match", "weight": 1.0}}
    }
    accuracy: ClassVar[str | None] = "match"

    def __init__(
        self,
        *,
        tasks: TaskSource | Iterable[Task] | None = None,
        data: str | Path | None = None,
        columns: Mapping[str, str] | None = None,
        to_task: RowToTask | None = None,
        on_bad_line: BadLinePolicy = "error",
        split: Split = "train",
        system_prompt: str = "",
        few_shot: int = 0,
        few_shot_data: str | Path | TaskSource | None = None,
        prompt_style: PromptStyle = "chat",
        **options: Any,
    ) -> None:
        check_split(split)
        check_choice("prompt_style", prompt_style, get_args(PromptStyle))
        check_number("few_shot", few_shot, least=0)
        key = "--data.train" if split == "train" else "--data.val"
        who = type(self).__name__
        if data is None and tasks is None:
            raise UserError(f"{who} has no problems: give data=FILE ({key}) or tasks=")
        if data is not None and tasks is not None:
            raise UserError(f"{who} takes data or tasks, not both")
        if tasks is not None and (columns is not None or to_task is not None):
            raise UserError(f"{who}: columns and to_task read rows, and tasks are no rows")
        read = partial(data_tasks, to_task=to_task or self.to_task, columns=columns)
        source = _as_source(tasks) if data is None else read(data, on_bad_line=on_bad_line, key=key)
        solved = source
        if few_shot and isinstance(few_shot_data, str | Path):
            solved = read(few_shot_data, key="few_shot_data")
        elif few_shot and few_shot_data is not None:
            solved = _as_source(few_shot_data)
        if len(solved) < few_shot:
            count = counted(len(solved), "solved problem")
            raise UserError(f"few_shot={few_shot}, but there are only {count}")
        shown = [solved[index] for index in range(few_shot)]
        frame = PromptFrame(
            system_prompt=system_prompt,
            style=prompt_style,
            shots=tuple((task.prompt, self.gold_action(task)) for task in shown),
        )
        first = few_shot if solved is source else 0
        indices = _without(source, shown, range(first, len(source)))
        super().__init__(tasks=FramedTasks(source, frame, indices), **options)

    @staticmethod
    def to_task(row: Row) -> Task:
        """The bare task of one row: `row_task`, unless a subclass knows better.

        A KeyError is a missing column, a ValueError a bad value; both are told with file and line.
        """
        return row_task(row)

    def gold_action(self, task: Task) -> str:
        """A reply that deserves the full reward, which also stands in few-shot prompts.

        Here it is the answer itself. It is asked for before the environment is complete, so it
        looks at the task only. Raises UserError for a task without an answer.
        """
        if task.answer is None:
            raise UserError(f"task {task.id} has no answer, so there is no right reply to show")
        return task.answer


def row_task(row: Row) -> Task:
    """The task of a row with the columns ``prompt`` and ``answer``, as they are named by default.

    ``prompt`` is text or a list of messages; ``answer`` is text, a number, or null. ``data_source``
    and ``id`` are read where they are there, and every other column goes into ``info``. Raises
    KeyError for a missing column and ValueError for a value of another kind.

    >>> task = row_task({"prompt": "2 + 3 = ?", "answer": 5, "level": 1})
    >>> task.answer, task.info
    ('5', {'level': 1})
    """
    named = {field: row[field] for field in ("data_source", "id") if row.get(field) is not None}
    for field, value in named.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError(f"column {field!r} must be text or a whole number, got {value!r}")
    return Task(
        prompt=_prompt(row["prompt"]),
        answer=_answer(row["answer"]),
        info={column: value for column, value in row.items() if column not in _FIELDS},
        **{field: str(value) for field, value in named.items()},
    )


def _as_source(tasks: Any) -> TaskSource:
    is_source = isinstance(tasks, TaskSource) and not isinstance(tasks, list | tuple)
    return tasks if is_source else ListTasks(tasks)


def _without(source: TaskSource, shown: Sequence[Task], indices: Sequence[int]) -> Sequence[int]:
    """The indices but those of problems that are shown; looked for where tasks are in memory."""
    if not shown or not isinstance(source, ListTasks):
        return indices
    asked = [task.prompt for task in shown]
    return [index for index in indices if source[index].prompt not in asked]


def _prompt(value: Any) -> Prompt:
    if isinstance(value, str) and value.strip():
        return value
    is_list = isinstance(value, list | tuple)
    if not (is_list and value and all(isinstance(part, Mapping) for part in value)):
        raise ValueError(
            f"column 'prompt' must be text that is not empty or a list of messages, got {value!r}"
        )
    # Parquet gives every message all the fields of its type, and null where one has none.
    stripped = [{k: v for k, v in part.items() if v is not None} for part in value]
    try:
        return tuple(Message.from_dict(part) for part in stripped)
    except KeyError as error:
        raise ValueError(f"column 'prompt': a message has no {error.args[0]!r}") from error


def _answer(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"column 'answer' must be text, a number or null, got {value!r}")
    return str(value)
