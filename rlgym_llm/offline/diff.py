"""Which rows another scoring judged otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlgym_llm.errors import DataError
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.rows.file_format import read_rows
from rlgym_llm.rows.json_text import to_json
from rlgym_llm.rows.row import Reject

__all__ = ["Change", "Diff", "diff_scores"]

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row whose verdict changed; None where there is or was none."""

    row: int
    """Place in the new output, from 1."""
    id: str | None
    old: float | None
    new: float | None


@dataclass(slots=True, kw_only=True)
class Diff:
    """How the verdicts of two scorings differ; a verdict is a score, or that there is none."""

    verdict: str
    """What was compared: ``reward``, or the accuracy component."""
    num_same: int = 0
    num_up: int = 0
    num_down: int = 0
    num_lost: int = 0
    """Judged then, not judged now."""
    num_won: int = 0
    """Not judged then, judged now."""
    num_unknown: int = 0
    """Rows that the old file does not have."""
    first: list[Change] = field(default_factory=list)

    @property
    def num_changed(self) -> int:
        """Rows whose verdict changed."""
        return self.num_up + self.num_down + self.num_lost + self.num_won

    def add(self, row: int, name: str | None, old: float | None, new: float | None) -> bool:
        """Counts one row; whether its verdict changed."""
        if old == new:
            self.num_same += 1
            return False
        if old is None:
            self.num_won += 1
        elif new is None:
            self.num_lost += 1
        elif new > old:
            self.num_up += 1
        else:
            self.num_down += 1
        if len(self.first) < _MOST_SHOWN:
            self.first.append(Change(row=row, id=name, old=old, new=new))
        return True


def diff_scores(settings: OfflineSettings, old: str) -> Diff:
    """Compares the output with ``old``, a file that was scored before.

    Changed rows go to ``.diff.jsonl`` beside the output, with both scores and their place (``row``,
    from 1). Rows are taken for the
    same where they stand in the same place with the same columns; from the first one on that is
    not, they are found by their id, for which the old verdicts are held in memory. The verdict is
    the accuracy component's raw score where both files have it, else the reward. Raises DataError.
    """
    found: Diff | None = None
    column = settings.score_column
    was = _scored_rows(old, column)
    by_id: dict[str, float | None] | None = None
    with settings.beside("diff.jsonl").open("wb") as out:
        for number, (row, card) in enumerate(_scored_rows(settings.output, column), start=1):
            name = _id_of(row)
            before = next(was, None) if by_id is None else None
            if found is None:
                both = before is not None and settings.accuracy in before[1]["components"]
                found = Diff(verdict=settings.accuracy if both and settings.accuracy else "reward")
            if by_id is None and (before is None or before[0] != row):
                by_id = _verdicts(old, column, found.verdict)
            new = _verdict(card, found.verdict)
            if by_id is None:
                assert before is not None
                then = _verdict(before[1], found.verdict)
            elif name in by_id:
                then = by_id[name]
            else:
                found.num_unknown += 1
                continue
            if found.add(number, name, then, new):
                line = {"row": number, "id": name, "old": then, "new": new, **row, column: card}
                out.write(to_json(line).encode() + b"\n")
    return found or Diff(verdict=settings.accuracy or "reward")


def _scored_rows(path: str, column: str) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """The rows without their scores, and the scores."""
    for number, row in read_rows(Path(path)):
        if isinstance(row, Reject):
            raise row.error(path)
        rest = dict(row)
        card = rest.pop(column, None)
        if not isinstance(card, Mapping) or "components" not in card:
            raise DataError(f"no scores in a column {column!r}", path=path, line=number)
        yield rest, card


def _verdicts(path: str, column: str, verdict: str) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for row, card in _scored_rows(path, column):
        name = _id_of(row)
        if name is None:
            raise DataError(
                "its rows are others than those that were scored now, and have no column 'id' to "
                "find them by",
                path=path,
            )
        found[name] = _verdict(card, verdict)
    return found


def _id_of(row: Mapping[str, Any]) -> str | None:
    name = row.get("id")
    return None if name is None else str(name)


def _verdict(card: Mapping[str, Any], verdict: str) -> float | None:
    if verdict == "reward":
        return card["reward"]  # type: ignore[no-any-return]
    part = card["components"].get(verdict)
    return None if part is None else part["raw"]
