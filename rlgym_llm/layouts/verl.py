"""verl's parquet schema, both ways, nothing lost on a way there and back.

A row is ``{data_source, prompt: [{role, content}], ability, reward_model: {style, ground_truth},
extra_info: {split, index, ...}}`` (verl's documentation, "Prepare Data for Post-Training"), after
generation with ``responses``. Whatever else we have goes into ``extra_info``, which verl hands to
the reward untouched; there the key ``rlgym`` notes, as JSON text, how it stood with us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rlgym_llm.rows.json_text import from_json, to_json

__all__ = ["from_verl", "to_verl"]

Row = Mapping[str, Any]

_OURS: Final = ("id", "prompt", "completion", "answer", "data_source", "ability")
_THEIRS: Final = ("data_source", "prompt", "ability", "reward_model", "extra_info")
_UNKNOWN: Final = "unknown"
_NOTE: Final = "rlgym"


def to_verl(row: Row, index: int) -> dict[str, Any]:
    """One of our rows as one of verl's; ``index`` numbers those that have no id, from 0.

    >>> out = to_verl({"id": 7, "prompt": "2+3?", "answer": 5, "split": "train"}, 0)
    >>> out["prompt"], out["reward_model"]
    ([{'role': 'user', 'content': '2+3?'}], {'style': 'rule', 'ground_truth': '5'})
    >>> out["extra_info"]["index"], out["extra_info"]["split"]
    (7, 'train')
    """
    note: dict[str, Any] = {}
    kept = row.get("extra_info")
    extra: dict[str, Any] = dict(kept) if isinstance(kept, Mapping) else {}
    others = {k: v for k, v in row.items() if k not in (*_OURS, "reward_model")}
    if isinstance(kept, Mapping):
        del others["extra_info"]
        if not kept:
            note["extra_info"] = {}  # an empty one would look like none
    clashes = {k: v for k, v in others.items() if k in extra or k in ("index", _NOTE)}
    if clashes:
        note["clashes"] = clashes
    if moved := [k for k in others if k not in clashes]:
        note["columns"] = moved
        extra |= {k: others[k] for k in moved}
    _note_id(row, extra, note, index)
    prompt = row["prompt"]
    if isinstance(prompt, str):
        note["prompt"] = "text"
        prompt = [{"role": "user", "content": prompt}]
    answer = row.get("answer")
    if answer is not None and not isinstance(answer, str):
        note["answer"] = answer
        answer = str(answer) if isinstance(answer, int | float) else to_json(answer)
    if note:
        extra[_NOTE] = to_json(note)
    style = row.get("reward_model")
    out = {
        "data_source": row.get("data_source", _UNKNOWN),
        "prompt": prompt,
        "ability": row.get("ability", _UNKNOWN),
        "reward_model": {"style": "rule"} | dict(style or {}) | {"ground_truth": answer},
        "extra_info": extra,
    }
    if row.get("completion") is not None:
        out["responses"] = [row["completion"]]
    return out


def from_verl(canonical: Row, columns: Row, *, completion_column: str | None) -> dict[str, Any]:
    """One of our rows out of one of verl's.

    ``canonical`` is what the layout read (prompt, completion, answer, ...), ``columns`` the row.
    ``extra_info``, ``ability`` and what ``reward_model`` says beyond a rule stay as columns, unless
    `to_verl` noted how the row was before.

    >>> ours = {"prompt": "2+3?", "answer": "5", "level": 1}
    >>> theirs = to_verl(ours, 0)
    >>> from_verl({"prompt": theirs["prompt"], "answer": "5"}, theirs, completion_column=None)
    {'prompt': '2+3?', 'answer': '5', 'level': 1}
    """
    row = dict(canonical)
    extra = columns.get("extra_info")
    extra = dict(extra) if isinstance(extra, Mapping) else None
    note = from_json(extra.pop(_NOTE)) if extra and isinstance(extra.get(_NOTE), str) else {}
    if note.get("prompt") == "text":
        row["prompt"] = columns["prompt"][0]["content"]
    if "answer" in note:
        row["answer"] = note["answer"]
    if "id" in note or note.get("added") == "index":
        row.pop("id", None)
    if note.get("id") is not None:
        row["id"] = note["id"]
    if columns.get("ability", _UNKNOWN) != _UNKNOWN:
        row["ability"] = columns["ability"]
    style = {k: v for k, v in (columns.get("reward_model") or {}).items() if k != "ground_truth"}
    if style != {"style": "rule"}:
        row["reward_model"] = style
    if extra is not None:
        if note.get("added") == "index":
            del extra["index"]
        row |= {k: extra.pop(k, None) for k in note.get("columns", ())}
        row |= note.get("clashes", {})
        if extra or not note or "extra_info" in note:
            row["extra_info"] = extra
    taken = {*_THEIRS, *row, completion_column}
    return row | {k: v for k, v in columns.items() if k not in taken}


def _note_id(row: Row, extra: dict[str, Any], note: dict[str, Any], index: int) -> None:
    name = row.get("id")
    if "index" not in extra:
        is_number = isinstance(name, int) and not isinstance(name, bool)
        extra["index"] = name if is_number else index
        note["added"] = "index"
        if name is not None:
            note["id"] = name
    elif name != extra["index"]:
        note["id"] = name
