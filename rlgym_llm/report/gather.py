"""All that a report says, as plain data for its page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlgym_llm.errors import DataError
from rlgym_llm.report.length_chart import Point
from rlgym_llm.report.rows import Spot, fetch_rows
from rlgym_llm.view.meaning import Meaning, meaning_of_summary
from rlgym_llm.view.shown import Facts, Part, ShownRow, read_facts, read_shown
from rlgym_llm.view.visible import Excerpt, excerpt, visible

__all__ = ["Findings", "RowText", "gather"]

_MOST_CHARS: Final = 6_000
_INFO_CHARS: Final = 400
_SHOWN_SLOWEST: Final = 20
_SHOWN_DISPUTED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RowText:
    """One row with its texts, each visible and of bounded length."""

    row: int
    line: int | None
    """In its input file."""
    note: str
    """Why it is shown: how slow it was, who disagrees."""
    shown: ShownRow | None
    parts: tuple[tuple[Part, Excerpt], ...] = ()
    answer: Excerpt | None = None
    infos: Mapping[str, str] | None = None
    """What the components said, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was read out of the scored file, beside its summary."""

    points: tuple[Point, ...]
    """The rows of the sample that have a reward."""
    samples: Mapping[str, tuple[float, ...]]
    """Raw scores of the sample by component; under ``""`` the rewards."""
    slowest: tuple[RowText, ...]
    disputed: tuple[RowText, ...]


def gather(output: str | Path, summary: Mapping[str, Any]) -> Findings:
    """Reads the sample, the slowest and the disputed rows. Raises DataError."""
    meaning = meaning_of_summary(summary)
    accuracy = (summary["accuracy"] or {}).get("component")
    slowest = summary["slowest"][:_SHOWN_SLOWEST]
    disputed = summary["disputed"]["rows"][:_SHOWN_DISPUTED]
    sample = [Spot(*entry) for entry in summary["sample"]]
    facts = _facts(fetch_rows(output, sample), meaning)
    texts = dict(fetch_rows(output, map(_spot, [*slowest, *disputed])))
    names = list(summary["components"])
    return Findings(
        points=tuple(_points(facts, accuracy)),
        samples={
            "": tuple(fact.reward for fact in facts if fact.reward is not None),
            **{name: tuple(_raws(facts, name)) for name in names},
        },
        slowest=tuple(
            _row_text(entry, texts, meaning, _slow_note(entry, many=len(names) > 1))
            for entry in slowest
        ),
        disputed=tuple(_row_text(entry, texts, meaning, None) for entry in disputed),
    )


def _spot(entry: Mapping[str, Any]) -> Spot:
    return Spot(entry["row"], entry["offset"], entry["length"])


def _facts(rows: Iterable[tuple[int, Mapping[str, Any]]], meaning: Meaning) -> list[Facts]:
    found = []
    for number, row in rows:
        try:
            found.append(read_facts(row, number + 1, meaning))
        except (DataError, AttributeError) as error:
            raise DataError(f"row {number} of the scored file cannot be read: {error}") from error
    return found


def _points(facts: Sequence[Facts], accuracy: str | None) -> Iterable[Point]:
    for fact in facts:
        if fact.reward is not None:
            verdict = None if accuracy is None else fact.raws.get(accuracy)
            yield Point(fact.chars, fact.reward, None if verdict is None else verdict > 0.5)


def _raws(facts: Sequence[Facts], name: str) -> Iterable[float]:
    return (raw for fact in facts if (raw := fact.raws.get(name)) is not None)


def _slow_note(entry: Mapping[str, Any], *, many: bool) -> str:
    from rlgym_llm.report.numbers import seconds

    where = f", most of it in {visible(entry['component'])}" if many else ""
    return f"{seconds(entry['seconds'])}{where}"


def _row_text(
    entry: Mapping[str, Any],
    rows: Mapping[int, Mapping[str, Any]],
    meaning: Meaning,
    note: str | None,
) -> RowText:
    number = entry["row"]
    try:
        shown = read_shown(rows[number], number + 1, meaning)
    except DataError as error:
        return RowText(row=number, line=entry["line"], note=str(error), shown=None)
    components = {} if shown.card is None else shown.card.components
    return RowText(
        row=number,
        line=entry["line"],
        note=_dispute(shown) if note is None else note,
        shown=shown,
        parts=tuple((part, excerpt(part.text, _MOST_CHARS)) for part in shown.parts),
        answer=None if shown.answer is None else excerpt(shown.answer, _MOST_CHARS),
        infos={name: _info(part.info) for name, part in components.items()},
    )


def _dispute(shown: ShownRow) -> str:
    """Who says what: the components of zeros and ones, and the file's own label."""
    said = []
    if shown.card is not None:
        said = [
            f"{visible(name)} {part.raw:g}"
            for name, part in shown.card.components.items()
            if part.raw in (0, 1)
        ]
    if shown.label is not None:
        said.append("labelled right" if shown.label else "labelled wrong")
    return ", ".join(said)


def _info(info: Mapping[str, Any]) -> str:
    said = {key: value for key, value in info.items() if value is not None}
    text = ", ".join(
        f"{key}: {value if isinstance(value, str) else json.dumps(value, default=str)}"
        for key, value in said.items()
    )
    cut = excerpt(text, _INFO_CHARS)
    return cut.head if not cut.num_left_out else f"{cut.head} … {cut.tail}"
