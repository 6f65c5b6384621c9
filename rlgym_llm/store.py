"""Rollouts on disk: one JSON object a line, readable by people first and by this module exactly.

A line opens with ``step``, ``prompt``, ``completion``, ``answer``, ``reward`` and ``components``
for whoever opens the file; ``schema_version``, ``rollout`` and ``card`` hold the records in full,
but for a completion's ``kept_token_ids``, which may be larger than all the rest.
`rlgym_llm.offline.card_json` writes less of a card, under the same names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlgym_llm.errors import DataError
from rlgym_llm.rows.json_text import to_json_line
from rlgym_llm.rows.writing import writing
from rlgym_llm.scores import Component, ScoreCard, StepScore
from rlgym_llm.types import SCHEMA_VERSION, Completion, Message, Prompt, Rollout, Task, Turn

__all__ = [
    "RolloutRecord",
    "RolloutWriter",
    "StoredRollouts",
    "decode_record",
    "encode_record",
    "read_rollouts",
    "write_rollouts",
]

_NOT_STORED = "kept_token_ids"
"""Field of a `Completion` that training alone has a use for; read back it is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """One stored line: a rollout, its score card and the training step it belongs to."""

    rollout: Rollout
    card: ScoreCard | None = None
    """None where the rollout was stored unscored."""
    step: int | None = None
    """Training step, None outside training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRollouts:
    """What a file holds."""

    records: tuple[RolloutRecord, ...]
    torn_line: int | None = None
    """Number of the last line where it is unfinished (its writer was killed), else None."""


class RolloutWriter:
    """Appends records to a JSONL file, whole lines only; a context manager.

    A last line that a killed writer left unfinished is cut off first, so that the file stays
    readable; whole lines are never touched. Task and score ``info`` must be JSON data.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _mend_tail(self.path)
        self._file = self.path.open("ab")

    def write(
        self,
        rollouts: Sequence[Rollout],
        cards: Sequence[ScoreCard] | None = None,
        *,
        step: int | None = None,
    ) -> None:
        """Appends one line per rollout, ``cards`` in the same order, and flushes.

        Raises DataError, and writes none of them, where a record holds NaN, infinity or something
        that JSON cannot carry; ValueError where rollouts and cards do not match; RlgymError, with
        the file, where the disk is full.
        """
        if cards is not None and [r.id for r in rollouts] != [c.rollout_id for c in cards]:
            raise ValueError("rollouts and cards do not match, one card per rollout in its order")
        lines = [
            _encode(
                RolloutRecord(rollout=r, card=cards[i] if cards else None, step=step), self.path
            )
            for i, r in enumerate(rollouts)
        ]
        with writing(self.path):
            self._file.write(b"".join(lines))
            self._file.flush()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with suppress(OSError):  # `write` flushes, and has told what it could not write
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_rollouts(
    path: str | Path,
    rollouts: Sequence[Rollout],
    cards: Sequence[ScoreCard] | None = None,
    *,
    step: int | None = None,
) -> None:
    """Appends the rollouts to ``path`` in one go; see `RolloutWriter`."""
    with RolloutWriter(path) as writer:
        writer.write(rollouts, cards, step=step)


def read_rollouts(path: str | Path) -> StoredRollouts:
    """Reads back what was written, equal record for equal record (but for kept sets).

    An unfinished last line is reported in ``torn_line`` and the rest is read. Raises DataError with
    file and line for any other bad line and for an unknown schema version.
    """
    records: list[RolloutRecord] = []
    try:
        file = Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error
    with file:
        for line, data in enumerate(file, start=1):
            is_whole = data.endswith(b"\n")
            if not data.strip():
                continue
            try:
                records.append(decode_record(json.loads(data)))
            except DataError as error:
                raise DataError(str(error), path=path, line=line) from error
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not is_whole:
                    return StoredRollouts(records=tuple(records), torn_line=line)
                what = f"{type(error).__name__}: {error}"
                raise DataError(f"not a stored rollout ({what})", path=path, line=line) from error
    return StoredRollouts(records=tuple(records))


def encode_record(record: RolloutRecord) -> dict[str, Any]:
    """The row of one record, as `RolloutWriter` writes it: dictionaries, tuples, text and numbers.

    Further keys beside it (an advantage, say) are read over by `decode_record`.
    """
    rollout, card = record.rollout, record.card
    return {
        "step": record.step,
        "prompt": _prompt_text(rollout.task.prompt),
        "completion": rollout.text,
        "answer": rollout.task.answer,
        "reward": card.reward if card else None,
        "components": {name: c.raw for name, c in card.components.items()} if card else {},
        "schema_version": SCHEMA_VERSION,
        "rollout": _plain(rollout),
        "card": _plain(card),
    }


def decode_record(row: Mapping[str, Any]) -> RolloutRecord:
    """The record of a row that `encode_record` made and a file gave back.

    Raises DataError for an unknown schema version; KeyError, ValueError, TypeError or
    AttributeError for a row that is no record.
    """
    version = row["schema_version"]
    if version != SCHEMA_VERSION:
        known = f"this version reads {SCHEMA_VERSION}"
        raise DataError(f"unknown schema_version {version!r} ({known})")
    card = row["card"]
    return RolloutRecord(
        rollout=_rollout(row["rollout"]),
        card=None if card is None else _card(card),
        step=row["step"],
    )


def _encode(record: RolloutRecord, path: Path) -> bytes:
    try:
        return to_json_line(encode_record(record))
    except (ValueError, TypeError) as error:
        what = f"rollout {record.rollout.id} cannot be stored: {error}"
        raise DataError(what, path=path) from error


def _plain(value: Any) -> Any:
    """Records as dictionaries of their fields; what is plain already is not copied."""
    if is_dataclass(value):
        names = [f.name for f in fields(value) if f.name != _NOT_STORED]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and value and not isinstance(value[0], int | float):
        return [_plain(item) for item in value]
    return value


def _prompt_text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message.role}] {message.content}" for message in prompt)


def _rollout(data: Mapping[str, Any]) -> Rollout:
    return Rollout(
        **{**data, "task": _task(data["task"]), "turns": tuple(map(_turn, data["turns"]))}
    )


def _task(data: Mapping[str, Any]) -> Task:
    prompt = data["prompt"]
    if not isinstance(prompt, str):
        prompt = tuple(map(Message.from_dict, prompt))
    return Task(**{**data, "prompt": prompt})


def _turn(data: Mapping[str, Any]) -> Turn:
    completion = {name: _tuples(value) for name, value in data["completion"].items()}
    completion.pop(_NOT_STORED, None)  # in lines of before, where it was always null
    return Turn(
        new_prompt_token_ids=tuple(data["new_prompt_token_ids"]),
        completion=Completion(**completion),
        reply=tuple(map(Message.from_dict, data["reply"])),
        env_reward=data["env_reward"],
    )


def _card(data: Mapping[str, Any]) -> ScoreCard:
    components = {name: _component(component) for name, component in data["components"].items()}
    return ScoreCard(**{**data, "components": components})


def _component(data: Mapping[str, Any]) -> Component:
    steps = tuple(StepScore(**step) for step in data.get("steps") or ())
    return Component(**{**data, "steps": steps})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _mend_tail(path: Path) -> None:
    """Makes the file end with a whole line, so that the next one does not run into a torn one."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return
        file.seek(0)
        data = file.read()
        start = data.rfind(b"\n") + 1
        try:
            json.loads(data[start:])
        except ValueError:
            file.truncate(start)
        else:
            file.write(b"\n")
