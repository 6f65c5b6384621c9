"""What the columns of a file mean, so that its rows can be shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.errors import DataError
from rlgym_llm.layouts.layout import Layout, recognise

__all__ = ["Meaning", "component_names", "meaning_of_rows", "meaning_of_summary", "summary_beside"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Which column holds what, and where the scores are."""

    layouts: tuple[Layout, ...]
    """Tried in order; several where a scored file was made out of several kinds of files."""
    score_column: str = "rlgym"
    components: Mapping[str, ComponentConfig] = field(default_factory=dict)
    """How the components were configured, where that is known."""


def summary_beside(path: str | Path) -> dict[str, Any] | None:
    """The summary that scoring wrote beside its output; None where there is none of this file."""
    try:
        summary = json.loads(Path(path).with_suffix(".summary.json").read_text())
        return summary if Path(summary["output"]).name == Path(path).name else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def meaning_of_summary(summary: Mapping[str, Any]) -> Meaning:
    """What the summary of a scoring run says about the columns of its output."""
    layouts = [
        _written(file["layout"], file["columns"]) for file in summary["inputs"] if file["layout"]
    ]
    configured = summary.get("run", {}).get("rewards", {}).get("components", {})
    return Meaning(
        layouts=tuple(dict.fromkeys(layouts)),
        score_column=summary["score_column"],
        components={name: _config(data) for name, data in configured.items()},
    )


def meaning_of_rows(
    rows: Sequence[Row],
    *,
    path: str | Path,
    mapping: Mapping[str, str] | None = None,
    score_column: str = "rlgym",
) -> Meaning:
    """What the first rows of a file say. Raises DataError as `recognise` does."""
    layout = recognise(rows, mapping, needs=("completion",), path=str(path))
    return Meaning(layouts=(layout,), score_column=score_column)


def component_names(rows: Iterable[Row], score_column: str) -> tuple[str, ...]:
    """The components that the cards of these rows have, in their order."""
    names: dict[str, None] = {}
    for row in rows:
        card = row.get(score_column) or row.get("card")
        parts = card.get("components") if isinstance(card, Mapping) else None
        if isinstance(parts, Mapping):
            names |= dict.fromkeys(map(str, parts))
    return tuple(names)


def _written(name: Any, columns: Mapping[str, Any]) -> Layout:
    """The layout of what was written for rows of this one."""
    if name == "gsm8k_solutions":  # a row became one for each of its solutions
        found: dict[str, Any] = {
            **columns,
            "id": "id",
            "completion": "completion",
            "label": "is_correct",
        }
        return Layout(name="plain", **found)
    try:
        return Layout(name=name, **columns)
    except TypeError as error:
        raise DataError(f"the summary names columns that no layout has: {error}") from error


def _config(data: Mapping[str, Any]) -> ComponentConfig:
    """Only what places a contribution on tokens: the rest needs its plugins."""
    placed = {key: data[key] for key in ("placement", "gamma") if key in data}
    return ComponentConfig(reward=data.get("reward") or "combined", **placed)
