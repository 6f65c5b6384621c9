"""What stands around a question: a system prompt, solved examples, and chat or string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlgym_llm.errors import UserError
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Message, Prompt, Task

__all__ = ["FramedTasks", "PromptFrame", "PromptStyle", "Shot", "frame_prompt", "frame_task"]

PromptStyle = Literal["chat", "string", "raw"]
"""``chat`` gives messages; ``string`` one text for base models, ``Question: ... Answer:``; ``raw``
leaves the prompt as it is."""

Shot = tuple[Prompt, str]
"""A question and the reply to it, shown before the question that is asked."""

_MAX_REMEMBERED: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFrame:
    r"""What a question is set into.

    Example: system prompt ``"Think."``, shot ``("1 + 1 = ?", "2")`` and style ``"string"`` make of
    ``"2 + 3 = ?"`` the prompt
    ``"Think.\n\nQuestion: 1 + 1 = ?\nAnswer: 2\n\nQuestion: 2 + 3 = ?\nAnswer:"``.
    """

    system_prompt: str = ""
    """What the model is told first; empty for nothing."""
    style: PromptStyle = "chat"
    shots: tuple[Shot, ...] = ()

    def __post_init__(self) -> None:
        if self.style == "raw" and (self.system_prompt or self.shots):
            raise UserError(
                "prompt_style='raw' leaves prompts as they are: it takes no system_prompt and no "
                "few_shot"
            )


def frame_prompt(prompt: Prompt, frame: PromptFrame) -> Prompt:
    r"""The prompt that asks a model; a conversation keeps a system message of its own.

    Raises UserError for a conversation that is to become a string.

    >>> frame_prompt("2 + 3 = ?", PromptFrame(shots=(("1 + 1 = ?", "2"),), style="string"))
    'Question: 1 + 1 = ?\nAnswer: 2\n\nQuestion: 2 + 3 = ?\nAnswer:'
    >>> [message.role for message in frame_prompt("2 + 3 = ?", PromptFrame(system_prompt="Think."))]
    ['system', 'user']
    """
    if frame.style == "raw":
        return prompt
    if frame.style == "string":
        return _string(prompt, frame)
    asked = _messages(prompt)
    if asked[0].role == "system":
        system, asked = asked[:1], asked[1:]
    elif frame.system_prompt:
        system = (Message(role="system", content=frame.system_prompt),)
    else:
        system = ()
    return (*system, *_solved(frame), *asked)


def frame_task(task: Task, frame: PromptFrame) -> Task:
    """The task with its prompt framed; an id that was the hash of the content is so again."""
    bare = Task(prompt=task.prompt, answer=task.answer, data_source=task.data_source)
    return Task(
        prompt=frame_prompt(task.prompt, frame),
        answer=task.answer,
        data_source=task.data_source,
        info=task.info,
        id="" if task.id == bare.id else task.id,
    )


class FramedTasks:
    """The tasks of another source at the given indices, framed when they are first asked for."""

    def __init__(self, source: TaskSource, frame: PromptFrame, indices: Sequence[int]) -> None:
        self.source = source
        self.frame = frame
        self.indices = indices
        self.rejects = getattr(source, "rejects", ())
        """Lines of a data file set aside under ``on_bad_line="skip"``."""
        self._framed: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Task:
        index = self.indices[index]
        if (task := self._framed.get(index)) is None:
            task = frame_task(self.source[index], self.frame)
            if len(self._framed) < _MAX_REMEMBERED:
                self._framed[index] = task
        return task

    def __repr__(self) -> str:
        return f"FramedTasks({len(self)} of {self.source!r})"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_framed": {}}


def _messages(prompt: Prompt) -> tuple[Message, ...]:
    return (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt


def _solved(frame: PromptFrame) -> Iterator[Message]:
    for asked, reply in frame.shots:
        yield from (message for message in _messages(asked) if message.role != "system")
        yield Message(role="assistant", content=reply)


def _string(prompt: Prompt, frame: PromptFrame) -> str:
    parts = [frame.system_prompt] if frame.system_prompt else []
    for question, reply in (*frame.shots, (prompt, None)):
        if not isinstance(question, str):
            raise UserError("prompt_style='string' needs prompts that are text, not conversations")
        parts.append(f"Question: {question}\nAnswer:" + ("" if reply is None else f" {reply}"))
    return "\n\n".join(parts)
