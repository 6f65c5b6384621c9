"""Which column of a file means what: known layouts recognised by their first rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, get_args

from rlgym_llm.errors import DataError, UnknownNameError, did_you_mean, nearest
from rlgym_llm.layouts.conversations import is_conversation
from rlgym_llm.layouts.samples import (
    FIELDS,
    Layout,
    LayoutName,
    Sample,
    listed,
    solved_columns,
    value_at,
)

__all__ = ["FIELDS", "Layout", "LayoutName", "Sample", "recognise", "value_at"]

Row = Mapping[str, Any]

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "prompt": ("prompt", "question", "problem", "query", "instruction", "input"),
    "completion": ("completion", "response", "output", "generation", "solution", "text"),
    "answer": ("answer", "gold", "ground_truth", "gold_answer", "target", "label", "solution"),
    "id": ("id", "uid", "index"),
    "group": ("group_id", "group", "task_id", "prompt_id", "problem_id", "question_id"),
    "data_source": ("data_source", "source", "dataset"),
    "label": ("is_correct", "correct", "label"),
    "reward": ("reward", "score"),
    "step": ("step",),
    "token_ids": ("token_ids", "response_ids", "completion_ids"),
    "logprobs": ("logprobs", "log_probs"),
}
_TEXTS: Final = ("prompt", "completion", "answer")
"""Fields of which two candidates are one too many: the wrong guess would score the wrong text."""
_WITHOUT_COLUMNS: Final = ("rollouts", "messages", "gsm8k_solutions")
"""Layouts whose texts stand in no column of their own."""


def recognise(
    rows: Sequence[Row],
    mapping: Mapping[str, str] | None = None,
    *,
    name: LayoutName | None = None,
    needs: Collection[str] = ("completion",),
    path: str | None = None,
) -> Layout:
    """The layout of a file, from its first rows (a hundred are plenty).

    ``mapping={"completion": "response"}`` says which column, or path with dots, a field is in, and
    beats what would be recognised. ``name`` says the layout outright. ``needs`` are the fields that
    every row must have. Raises DataError, naming ``path``, where there is no row, where a needed
    field has no column or two that could be meant, and where the mapping names what does not exist.

    >>> recognise([{"input": "2+3?", "output": "5", "gts": "5", "score": 1.0, "step": 3}]).columns
    {'prompt': 'input', 'completion': 'output', 'answer': 'gts', 'reward': 'score', 'step': 'step'}
    """
    if not rows:
        raise DataError("there is no row to recognise a layout by", path=path)
    columns = dict.fromkeys(chain.from_iterable(rows))
    first = {
        column: next((row[column] for row in rows if row.get(column) is not None), None)
        for column in columns
    }
    mapping = dict(mapping or {})
    _check_mapping(mapping, rows, first, path)
    if name is not None and name not in get_args(LayoutName):
        raise UnknownNameError("layout", name, get_args(LayoutName))
    kind = name or _kind(first)
    if kind in _WITHOUT_COLUMNS and not mapping.keys().isdisjoint(_TEXTS):
        kind = "plain"  # whoever names the column of a text means it
    layout = _with_columns(kind, first, mapping, needs, path)
    return replace(layout, needs=frozenset(needs))


def _kind(first: Row) -> LayoutName:
    rollout = first.get("rollout")
    if isinstance(rollout, Mapping) and "turns" in rollout and "task" in rollout:
        return "rollouts"
    if "question" in first and solved_columns(first):
        return "gsm8k_solutions"
    if {"input", "output"} <= first.keys() and not first.keys().isdisjoint(("gts", "score")):
        return "verl_dump"
    if isinstance(first.get("reward_model"), Mapping) and "prompt" in first:
        return "verl"
    if _chat_column(first) is not None and "completion" not in first:
        return "messages"
    if {"step", "prompt", "completion", "advantage"} <= first.keys():
        return "trl"
    return "plain"


def _with_columns(
    kind: LayoutName,
    first: Row,
    mapping: Mapping[str, str],
    needs: Collection[str],
    path: str | None,
) -> Layout:
    known: dict[str, str | None]
    if kind == "rollouts":
        return Layout(name=kind)
    if kind == "verl_dump":
        known = {"prompt": "input", "completion": "output", "answer": "gts", "reward": "score"}
        known |= {"group": "uid", "id": "request_id", "step": "step", "label": None}
    elif kind == "verl":
        known = {"prompt": "prompt", "completion": None, "answer": "reward_model.ground_truth"}
        known |= {"id": "extra_info.index", "data_source": "data_source", "group": None}
        for column in ("responses", "response", "completion"):
            if column in first:
                known["completion"] = column
                break
        if not isinstance(first.get("extra_info"), Mapping):
            known["id"] = "index"
    elif kind == "messages":
        known = {"prompt": _chat_column(first), "completion": None}
    elif kind == "gsm8k_solutions":
        known = {"prompt": "question", "answer": "ground_truth", "completion": None}
    else:
        known = {}
    known = {
        field: column
        for field, column in known.items()
        if (column is None and field != "prompt") or (column or "").partition(".")[0] in first
    }
    if kind == "messages" and "prompt" not in known:
        raise DataError(f"no column holds messages (columns: {listed(first)})", path=path)
    known |= mapping
    for field in FIELDS:
        if field not in known:
            known[field] = _guess(field, first, known, needs, path)
    layout = Layout(name=kind, **known)  # type: ignore[arg-type]
    gives_completion = kind in ("messages", "gsm8k_solutions")
    for field in needs:
        if getattr(layout, field) is None and not (field == "completion" and gives_completion):
            raise DataError(_missing(field, first), path=path)
    return layout


def _guess(
    field: str,
    first: Row,
    known: Mapping[str, str | None],
    needs: Collection[str],
    path: str | None,
) -> str | None:
    """The column of a field by its usual names: ours if it is there, else the only other one."""
    taken = {column for column in known.values() if column is not None}
    found = [
        name
        for name in _SYNONYMS[field]
        if name in first and name not in taken and _fits(field, name, first[name])
    ]
    if field == "completion" and field not in needs:
        # A data set of problems has worked solutions and texts that nobody sampled.
        found = [name for name in found if name not in ("solution", "text")]
    if len(found) > 1 and found[-1] == "solution":
        found.pop()  # worked steps stand beside the short answer and the model's response
    if field not in _TEXTS or len(found) < 2 or found[0] == field:
        return found[0] if found else None
    raise DataError(
        f"columns {found[0]!r} and {found[1]!r} could both be the {field}: say which with "
        f"--map {field}={found[0]} or --map {field}={found[1]} (columns: {listed(first)})",
        path=path,
    )


def _fits(field: str, column: str, value: Any) -> bool:
    """Whether the value is of the field's kind; ``label`` is a verdict or an answer by its kind."""
    if field == "label":
        return isinstance(value, bool)
    if field in ("reward", "step"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if field in ("token_ids", "logprobs"):
        return isinstance(value, list | tuple)
    if field == "answer":
        return not (column == "label" and isinstance(value, bool))
    if field in ("prompt", "completion"):
        return value is None or isinstance(value, str) or is_conversation(value)
    return not isinstance(value, Mapping | list)


def _check_mapping(
    mapping: Mapping[str, str], rows: Sequence[Row], first: Row, path: str | None
) -> None:
    for field, column in mapping.items():
        if field not in FIELDS:
            hint = did_you_mean(field, FIELDS)
            raise DataError(f"no field {field!r}{hint} (fields: {', '.join(FIELDS)})", path=path)
        if column not in first and all(value_at(row, column) is None for row in rows):
            hint = did_you_mean(column, map(str, first))
            raise DataError(
                f"no column {column!r} for {field}{hint} (columns: {listed(first)})", path=path
            )


def _missing(field: str, first: Row) -> str:
    guess = nearest(field, map(str, first))
    hint = f", such as --map {field}={guess}" if guess else ""
    names = " or ".join(_SYNONYMS[field])
    return (
        f"no column holds the {field} ({names}): say which with --map {field}=COLUMN{hint} "
        f"(columns: {listed(first)})"
    )


def _chat_column(first: Row) -> str | None:
    for column in ("messages", "conversations", "conversation"):
        if isinstance(first.get(column), list):
            return column
    return None
