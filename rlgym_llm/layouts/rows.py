"""Rows of our own layout out of any other's, and from there into the others'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rlgym_llm.layouts.conversations import to_prompt
from rlgym_llm.layouts.layout import Layout, Sample, value_at
from rlgym_llm.layouts.verl import from_verl
from rlgym_llm.types import Message, Prompt, Task

__all__ = ["messages_row", "plain_prompt", "rlgym_row", "trl_row", "verl_dump_row"]

Row = Mapping[str, Any]

_CANONICAL: Final = ("id", "prompt", "completion", "answer", "data_source")


def rlgym_row(sample: Sample, layout: Layout) -> dict[str, Any]:
    """The sample as a row ``{id, prompt, completion, answer, data_source, ...}``, absent ones out.

    Columns that the layout gives no meaning keep their names and values, and so do ids and answers
    their types.

    >>> from rlgym_llm.layouts.layout import recognise
    >>> row = {"problem": "2+3?", "output": "5", "gold": 5, "level": 1}
    >>> layout = recognise([row])
    >>> rlgym_row(layout.to_samples(row)[0], layout)
    {'prompt': '2+3?', 'completion': '5', 'answer': 5, 'level': 1}
    """
    row = _canonical(sample, layout)
    if sample.rollout is not None:
        rollout = sample.rollout
        row |= {"group_id": rollout.group_id, "sample_index": rollout.sample_index}
        row |= {"reward": sample.reward, "step": sample.step}
        others = rollout.task.info
    elif layout.name == "verl":
        return from_verl(row, sample.columns, completion_column=layout.completion)
    else:
        spoken_for = {getattr(layout, name) for name in _CANONICAL}
        if layout.name == "gsm8k_solutions":
            spoken_for |= {"id", "completion"}  # named by the layout, not by the file
        others = {k: v for k, v in sample.columns.items() if k not in spoken_for}
    return row | {column: value for column, value in others.items() if column not in row}


def trl_row(row: Row) -> dict[str, Any]:
    """One of our rows as TRL takes it: prompt and completion both text, or both messages.

    >>> trl_row({"prompt": [{"role": "user", "content": "2+3?"}], "completion": "5"})["completion"]
    [{'role': 'assistant', 'content': '5'}]
    """
    if isinstance(row["prompt"], str) or row.get("completion") is None:
        return dict(row)
    return {**row, "completion": [_message("assistant", row["completion"])]}


def messages_row(row: Row) -> dict[str, Any]:
    """One of our rows as a conversation in OpenAI's form, the other columns beside it.

    >>> messages_row({"prompt": "2+3?", "completion": "5"})["messages"][1]
    {'role': 'assistant', 'content': '5'}
    """
    prompt = row["prompt"]
    messages = [_message("user", prompt)] if isinstance(prompt, str) else list(prompt)
    if row.get("completion") is not None:
        messages.append(_message("assistant", row["completion"]))
    others = {k: v for k, v in row.items() if k not in ("prompt", "completion")}
    return {"messages": messages, **others}


def verl_dump_row(row: Row) -> dict[str, Any]:
    """One of our rows as verl dumps its rollouts: ``{input, output, gts, score, step, ...}``.

    >>> verl_dump_row({"prompt": "2+3?", "completion": "5", "answer": "5", "reward": 1.0})
    {'input': '2+3?', 'output': '5', 'gts': '5', 'score': 1.0, 'step': None}
    """
    from rlgym_llm.inject import prompt_text

    out = {
        "input": prompt_text(Task(prompt=to_prompt(row["prompt"]))),
        "output": row.get("completion"),
        "gts": row.get("answer"),
        "score": row.get("reward", row.get("score")),
        "step": row.get("step"),
    }
    taken = ("prompt", "completion", "answer", "reward", "score", "step")
    return out | {k: v for k, v in row.items() if k not in taken and k not in out}


def plain_prompt(prompt: Prompt | None) -> str | list[dict[str, Any]] | None:
    """The prompt as JSON data: text, or messages as dictionaries."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return [message.to_dict() for message in prompt]


def _canonical(sample: Sample, layout: Layout) -> dict[str, Any]:
    row: dict[str, Any] = {}
    name = value_at(sample.columns, layout.id)
    if name is not None or sample.rollout is not None or layout.name == "gsm8k_solutions":
        row["id"] = name if str(name) == sample.id else sample.id
    if sample.prompt is not None:
        row["prompt"] = plain_prompt(sample.prompt)
    if sample.completion is not None:
        row["completion"] = sample.completion
    if sample.answer is not None:
        answer = value_at(sample.columns, layout.answer)
        row["answer"] = sample.answer if answer is None else answer
    if sample.data_source != "unknown":
        row["data_source"] = sample.data_source
    return row


def _message(role: Any, content: str) -> dict[str, Any]:
    return Message(role=role, content=content).to_dict()
