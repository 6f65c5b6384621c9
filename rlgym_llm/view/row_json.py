"""A row as the page gets it: every text visible and of bounded length."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.scores import Component
from rlgym_llm.view.shown import BAD_LINE, ShownRow
from rlgym_llm.view.spans import Span, step_spans, token_spans
from rlgym_llm.view.visible import excerpt, visible

__all__ = ["MOST_CHARS", "bad_json", "brief_json", "row_json"]

MOST_CHARS: Final = 20_000
"""Of a text, unless more is asked for."""
_MOST_SPANS: Final = 20_000
_SNIPPET: Final = 240


def brief_json(number: int, record: Any, status: str, completion: str) -> dict[str, Any]:
    """A row of the list: numbers of its index record, and how its completion begins and ends."""
    one_line = " ".join(completion[: 4 * _SNIPPET].split())
    return {
        "row": number,
        "line": int(record["line"]),
        "reward": _finite(record["reward"]),
        "status": status,
        "has_failed": bool(record["has_failed"]),
        "chars": int(record["chars"]),
        "raw": [_finite(value) for value in record["raw"]],
        "snippet": visible(one_line[:_SNIPPET]),
    }


def row_json(
    number: int,
    line: int,
    shown: ShownRow,
    components: Mapping[str, ComponentConfig],
    *,
    most: int = MOST_CHARS,
    with_spans: bool = True,
) -> dict[str, Any]:
    """One row in full, each of its texts of at most ``most`` characters."""
    card = shown.card
    error = None if card is None else card.error
    if shown.rollout is not None and shown.rollout.error is not None:
        error = shown.rollout.error
    parts = {} if card is None else card.components
    return {
        "row": number,
        "line": line,
        "id": visible(shown.id),
        "reward": _finite(shown.reward),
        "status": shown.status,
        "error": None if error is None else visible(error),
        "label": shown.label,
        "parts": [
            {"role": part.role, "is_sampled": part.is_sampled, **asdict(excerpt(part.text, most))}
            for part in shown.parts
        ],
        "answer": None if shown.answer is None else asdict(excerpt(shown.answer, most)),
        "components": [_component(name, part) for name, part in parts.items()],
        "spans": _spans(shown, components, most) if with_spans else {},
        "others": {visible(str(key)): _data(value, most) for key, value in shown.others.items()},
    }


def bad_json(number: int, line: int, reason: str, data: bytes) -> dict[str, Any]:
    """A line that is no row, with its bytes as text."""
    return {
        "row": number,
        "line": line,
        "status": BAD_LINE,
        "error": visible(reason),
        "text": asdict(excerpt(data.decode(errors="replace"), MOST_CHARS)),
    }


def _component(name: str, part: Component) -> dict[str, Any]:
    return {
        "name": visible(name),
        "raw": _finite(part.raw),
        "weight": _finite(part.weight),
        "transformed": _finite(part.transformed),
        "contribution": _finite(part.contribution),
        "status": part.status.value,
        "error": None if part.error is None else visible(part.error),
        "info": {visible(str(key)): _data(value, 2_000) for key, value in part.info.items()},
    }


def _spans(
    shown: ShownRow, components: Mapping[str, ComponentConfig], most: int
) -> dict[str, dict[str, Any]]:
    """Every way to colour the text, by name."""
    card = shown.card
    found: dict[str, Sequence[Span]] = {}
    if card is None:
        return {}
    if shown.rollout is not None:
        tokens = token_spans(shown.rollout, card, components)
        if tokens is not None:
            found["token rewards"] = tokens
    for name, part in card.components.items():
        if part.steps:
            found[f"steps of {visible(name)}"] = step_spans(shown.completion, part.steps)
    return {name: _bounded(spans, most) for name, spans in found.items()}


def _bounded(spans: Sequence[Span], most: int) -> dict[str, Any]:
    kept: list[tuple[str, float | None]] = []
    chars = 0
    for text, value in spans[:_MOST_SPANS]:
        if chars >= most:
            break
        kept.append((visible(text[: most - chars]), _finite(value)))
        chars += len(text)
    total = sum(len(text) for text, _ in spans)
    return {"spans": kept, "num_left_out": max(0, total - chars)}


def _data(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    cut = excerpt(text, most)
    if not cut.num_left_out:
        return cut.head
    return f"{cut.head} [{cut.num_left_out:,} characters left out] {cut.tail}"


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
