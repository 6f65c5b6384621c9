"""Rows of a known layout, read as samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from rlgym_llm.errors import DataError
from rlgym_llm.layouts.conversations import (
    is_conversation,
    reply_text,
    split_reply,
    to_messages,
    to_prompt,
)
from rlgym_llm.types import Message, Prompt, Rollout
from rlgym_llm.unchecked import unchecked_tuple

__all__ = ["FIELDS", "Layout", "LayoutName", "Sample", "listed", "solved_columns", "value_at"]

Row = Mapping[str, Any]

LayoutName = Literal["plain", "rollouts", "messages", "verl", "verl_dump", "trl", "gsm8k_solutions"]
"""``plain``: columns by their usual names; ``rollouts``: what `RolloutWriter` writes;
``messages``: OpenAI's or ShareGPT's conversations; ``verl``: its parquet, with ``responses`` where
it was generated from; ``verl_dump``: its rollout dumps; ``trl``: its completions table;
``gsm8k_solutions``: a question a row, one object ``{solution, is_correct}`` a model."""

FIELDS: Final = (
    *("prompt", "completion", "answer", "id", "group", "data_source"),
    *("label", "reward", "step", "token_ids", "logprobs"),
)
"""What a layout finds columns for, and what an explicit mapping may name."""


class Sample(NamedTuple):
    """One completion of one prompt, as any layout gives it; a task without one has None there.

    A tuple and no dataclass: files hold millions of rows, and a tuple is made four times as fast.
    """

    id: str
    """The id column as text; else the number that the row was read under."""
    prompt: Prompt | None
    """None where there is no such column. Never empty."""
    completion: str | None
    answer: str | None
    """Ground truth as text: 3 is ``"3"``, a list or an object its JSON."""
    data_source: str
    group: str | None
    """What siblings share: the group column as text, else the prompt's text or its JSON."""
    columns: Mapping[str, Any]
    """The whole row, also what rewards may ask for by name; not a copy, so not to be changed."""
    label: bool | None = None
    """Whether it is right, where the file says so."""
    reward: float | None = None
    """The score that the file already has."""
    step: int | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    """One per token of ``token_ids``."""
    rollout: Rollout | None = None
    """The whole record, where the file is a rollout dump."""


_made = unchecked_tuple(Sample)
_NO_REST: Final = (None, None, (), None, None)
"""The last fields of a sample, from the reward on, where the file tells nothing of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which column (or path such as ``reward_model.ground_truth``) holds what; None for none.

    Plain data: it pickles to workers and is printed where people ask what was recognised.
    """

    name: LayoutName
    prompt: str | None = None
    completion: str | None = None
    """``verl``: a list of completions, each a sample of its own."""
    answer: str | None = None
    id: str | None = None
    group: str | None = None
    data_source: str | None = None
    label: str | None = None
    reward: str | None = None
    step: str | None = None
    token_ids: str | None = None
    logprobs: str | None = None
    needs: frozenset[str] = frozenset()
    """Fields without which a row is bad."""

    @property
    def columns(self) -> dict[str, str]:
        """The fields that were found, with their columns."""
        found = {name: getattr(self, name) for name in FIELDS}
        return {name: column for name, column in found.items() if column is not None}

    def to_samples(self, row: Row, number: int = 1) -> list[Sample]:
        """The samples of one row: one, or one for each of its completions.

        ``number`` is the line or row the reader gave, from 1; it names the row where no column
        does. Raises DataError without file and line (the caller knows them) for an empty prompt, a
        missing value that is needed, and a value of the wrong kind.

        >>> from rlgym_llm.layouts.layout import recognise
        >>> layout = recognise([{"question": "2+3?", "response": "5", "gold": 5}])
        >>> sample = layout.to_samples({"question": "2+3?", "response": "5", "gold": 5}, 7)[0]
        >>> sample.id, sample.prompt, sample.completion, sample.answer
        ('7', '2+3?', '5', '5')
        """
        try:
            if self.name in _READERS:
                samples = _READERS[self.name](self, row, number)
            else:
                samples = [self._sample(row, number)]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            what = f"no {error}" if isinstance(error, KeyError) else error
            raise DataError(f"not a row of the layout {self.name}: {what}") from error
        for sample in samples if self.needs else ():
            for name in self.needs:
                if getattr(sample, name) is None:
                    column = getattr(self, name)
                    where = f"column {column!r}" if column else f"layout {self.name}"
                    has = listed(row)
                    raise DataError(f"the row has no {name} ({where}; its columns: {has})")
        return samples

    def _sample(self, row: Row, number: int) -> Sample:
        # Runs for every row of a file: columns of text go straight through, by one look each.
        get: Any = row.get  # also of None, which JSON calls no column
        prompt = get(self.prompt)
        if type(prompt) is not str or not prompt.strip():
            prompt = value_at(row, self.prompt) if prompt is None else prompt
            prompt = None if prompt is None else to_prompt(prompt)
        completion = get(self.completion)
        if type(completion) is not str:
            completion = value_at(row, self.completion)
            completion = None if completion is None else reply_text(completion)
        answer = get(self.answer)
        if type(answer) is not str:
            answer = _text(value_at(row, self.answer))
        name = get(self.id)
        if type(name) is not str:
            name = value_at(row, self.id)
            name = str(number if name is None else name)
        group = None if self.group is None else value_at(row, self.group)
        if group is None:
            group = prompt if prompt is None or type(prompt) is str else _group(prompt)
        elif type(group) is not str:
            group = str(group)
        source = None if self.data_source is None else value_at(row, self.data_source)
        source = "unknown" if source is None else str(source)
        label = None
        if self.label is not None:
            label = get(self.label)
            if type(label) is not bool:
                label = value_at(row, self.label)
                label = label if isinstance(label, bool) else None
        told = (name, prompt, completion, answer, source, group, row, label)
        sample = _made(told + _NO_REST)
        if self.reward is self.step is self.token_ids is self.logprobs is None:
            return sample
        return self._with_rest(sample, row)

    def _with_rest(self, sample: Sample, row: Row) -> Sample:
        token_ids, logprobs = value_at(row, self.token_ids), value_at(row, self.logprobs)
        reward, step = value_at(row, self.reward), value_at(row, self.step)
        return sample._replace(
            reward=float(reward) if isinstance(reward, int | float) else None,
            step=step if isinstance(step, int) else None,
            token_ids=tuple(token_ids) if token_ids else (),
            logprobs=tuple(logprobs) if logprobs else None,
        )


def value_at(row: Row, path: str | None) -> Any:
    """What stands in the column, or under the path with dots where no column is called so.

    >>> value_at({"reward_model": {"ground_truth": "5"}}, "reward_model.ground_truth")
    '5'
    """
    if path is None or path in row:
        return row.get(path)  # type: ignore[arg-type]
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def listed(row: Row) -> str:
    """The row's columns, for an error message."""
    return ", ".join(map(str, row)) or "none"


def solved_columns(row: Row) -> list[str]:
    """Columns of objects ``{solution, is_correct}``, as GSM8K's example solutions have them."""
    return [
        column
        for column, value in row.items()
        if isinstance(value, Mapping) and "solution" in value and "is_correct" in value
    ]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None if value != value else str(value)  # tables write NaN where nothing is
    return json.dumps(value, ensure_ascii=False, default=str)


def _group(messages: Sequence[Message]) -> str:
    return json.dumps([message.to_dict() for message in messages], ensure_ascii=False)


def _read_rollout(layout: Layout, row: Row, number: int) -> list[Sample]:
    from rlgym_llm.store import decode_record

    record = decode_record(row)
    rollout, task = record.rollout, record.rollout.task
    return [
        Sample(
            id=rollout.id,
            prompt=task.prompt,
            completion=rollout.text,
            answer=task.answer,
            data_source=task.data_source,
            group=rollout.group_id,
            columns=row,
            reward=record.card.reward if record.card else None,
            step=record.step,
            rollout=rollout,
        )
    ]


def _read_chat(layout: Layout, row: Row, number: int) -> list[Sample]:
    chat = value_at(row, layout.prompt)
    if chat is None:
        raise DataError(f"the row has no {layout.prompt!r} (its columns: {listed(row)})")
    asked, reply = split_reply(to_messages(chat))
    to_prompt([message.to_dict() for message in asked])  # an empty question is an error here too
    rest = replace(layout, prompt=None)._sample(row, number)
    group = rest.group
    if group is None:
        group = _group(asked)
    return [rest._replace(prompt=asked, completion=reply, group=group)]


def _read_verl(layout: Layout, row: Row, number: int) -> list[Sample]:
    replies = value_at(row, layout.completion)
    if not isinstance(replies, list | tuple) or is_conversation(replies):
        return [layout._sample(row, number)]
    sample = replace(layout, completion=None)._sample(row, number)
    if len(replies) == 1:
        return [sample._replace(completion=reply_text(replies[0]))]
    return [
        sample._replace(id=f"{sample.id}-{index}", completion=reply_text(reply))
        for index, reply in enumerate(replies)
    ]


def _read_solutions(layout: Layout, row: Row, number: int) -> list[Sample]:
    models = solved_columns(row)
    sample = layout._sample(row, number)
    shared = {column: value for column, value in row.items() if column not in models}
    samples = []
    for model in models:
        name, solved = f"{sample.id}-{model}", row[model]
        columns = {**shared, "id": name, "model": model, "completion": solved["solution"]}
        columns["is_correct"] = solved["is_correct"]
        samples.append(
            sample._replace(
                id=name,
                completion=reply_text(solved["solution"]),
                label=solved["is_correct"],
                columns=columns,
            )
        )
    return samples


_READERS: Final[Mapping[str, Callable[[Layout, Row, int], list[Sample]]]] = {
    "rollouts": _read_rollout,
    "messages": _read_chat,
    "verl": _read_verl,
    "gsm8k_solutions": _read_solutions,
}
"""The layouts of which a row is more than its columns."""
