"""A row as people look at it: its texts, its score card, and whatever else it carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rlgym_llm.errors import DataError
from rlgym_llm.layouts.layout import Layout, Sample
from rlgym_llm.scores import FAILED, Component, ScoreCard, ScoreStatus, StepScore
from rlgym_llm.types import Rollout
from rlgym_llm.view.meaning import Meaning

__all__ = ["BAD_LINE", "UNSCORED", "Facts", "Part", "ShownRow", "read_facts", "read_shown"]

UNSCORED: Final = "unscored"
BAD_LINE: Final = "bad_line"
"""Beside the statuses of cards: rows without a card, and lines that are no rows."""

Row = Mapping[str, Any]


class Facts(NamedTuple):
    """What rows are chosen and sorted by."""

    reward: float | None
    status: str
    raws: Mapping[str, float | None]
    """Raw scores by component."""
    has_failed: bool
    """Whether a component failed."""
    chars: int
    """Length of the completion."""
    group: str | None


class Part(NamedTuple):
    """One piece of a conversation."""

    role: str
    text: str
    is_sampled: bool
    """Whether the policy wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """All that is known about one completion."""

    id: str
    parts: tuple[Part, ...]
    """The conversation, what was sampled included."""
    completion: str
    answer: str | None
    label: bool | None
    """Whether the file says that it is right."""
    reward: float | None
    status: str
    card: ScoreCard | None
    rollout: Rollout | None
    """The whole record, where the file is a rollout dump."""
    others: Mapping[str, Any]
    """Columns that are shown nowhere else."""


def read_facts(row: Row, number: int, meaning: Meaning) -> Facts:
    """The facts of a row; raises DataError where it is none of the known layouts."""
    card = _card_data(row, meaning)
    rollout = row.get("rollout")
    if isinstance(rollout, Mapping) and isinstance(text := row.get("completion"), str):
        chars, group, reward = len(text), rollout.get("group_id"), row.get("reward")
    else:
        sample, _ = _sample(row, number, meaning)
        chars, group, reward = len(sample.completion or ""), sample.group, sample.reward
    if card is None:
        return Facts(reward, UNSCORED, {}, False, chars, group)
    parts = card.get("components") or {}
    return Facts(
        card.get("reward"),
        str(card.get("status")),
        {name: part.get("raw") for name, part in parts.items()},
        any(part.get("status") in FAILED for part in parts.values()),
        chars,
        group,
    )


def read_shown(row: Row, number: int, meaning: Meaning) -> ShownRow:
    """The row in full; raises DataError where it, or its card, is not what it should be."""
    sample, layout = _sample(row, number, meaning)
    data = _card_data(row, meaning)
    try:
        card = None if data is None else _card(data, sample.id)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DataError(f"column {meaning.score_column!r} holds no score card: {error}") from error
    used = {meaning.score_column, *_ROLLOUT_COLUMNS} if sample.rollout else {meaning.score_column}
    used |= {column for column in layout.columns.values() if layout.name != "verl"}
    return ShownRow(
        id=sample.id,
        parts=tuple(_parts(sample)),
        completion=sample.completion or "",
        answer=sample.answer,
        label=sample.label,
        reward=sample.reward if card is None else card.reward,
        status=UNSCORED if card is None else card.status.value,
        card=card,
        rollout=sample.rollout,
        others={key: value for key, value in row.items() if key not in used},
    )


_ROLLOUT_COLUMNS: Final = (
    *("step", "prompt", "completion", "answer", "reward", "components"),
    *("schema_version", "rollout", "card"),
)


def _sample(row: Row, number: int, meaning: Meaning) -> tuple[Sample, Layout]:
    wrong: DataError | None = None
    for layout in meaning.layouts:
        try:
            samples = layout.to_samples(row, number)
        except DataError as error:
            wrong = error
            continue
        if samples and samples[0].completion is not None:
            return samples[0], layout
    raise wrong or DataError("the row holds no completion")


def _card_data(row: Row, meaning: Meaning) -> Row | None:
    """The card that scoring wrote, else the one that training did."""
    for column in (meaning.score_column, "card"):
        card = row.get(column)
        if isinstance(card, Mapping) and isinstance(card.get("components"), Mapping):
            return card
    return None


def _card(data: Row, rollout_id: str) -> ScoreCard:
    return ScoreCard(
        rollout_id=rollout_id,
        reward=_number(data["reward"]),
        status=data["status"],
        components={name: _component(part) for name, part in data["components"].items()},
        error=data.get("error"),
    )


def _component(data: Row) -> Component:
    info = data.get("info")
    if isinstance(info, str):  # parquet holds it as JSON text
        info = json.loads(info)
    return Component(
        raw=_number(data["raw"]),
        weight=float(data["weight"]),
        transformed=_number(data["transformed"]),
        contribution=_number(data["contribution"]),
        status=ScoreStatus(data["status"]),
        steps=tuple(_step(step) for step in data.get("steps") or ()),
        info=info or {},
        error=data.get("error"),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _step(data: Any) -> StepScore:
    """JSON lines hold ``[value, start, end]``, parquet and dumps hold objects."""
    if isinstance(data, Mapping):
        start, end = (data.get(f"char_{edge}", data.get(edge)) for edge in ("start", "end"))
        return StepScore(value=data["value"], char_start=start, char_end=end)
    value, start, end = data
    return StepScore(value=value, char_start=start, char_end=end)


def _parts(sample: Sample) -> list[Part]:
    prompt = sample.prompt
    if prompt is None:
        asked = []
    elif isinstance(prompt, str):
        asked = [Part("prompt", prompt, False)]
    else:
        asked = [Part(message.role, message.content, False) for message in prompt]
    if sample.rollout is None:
        return [*asked, Part("completion", sample.completion or "", True)]
    for turn in sample.rollout.turns:
        asked.append(Part("completion", turn.completion.text, True))
        asked += [Part(message.role, message.content, False) for message in turn.reply]
    return asked
