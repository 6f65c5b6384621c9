"""A score card as the JSON that is written beside its row.

`rlgym_llm.store` writes the whole record, to read it back; here the row has the id, times are left
out, steps are triples, and every field is spelt, for millions of cards pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import orjson

from rlgym_llm.plain import json_data
from rlgym_llm.scores import Component, ScoreCard
from rlgym_llm.types import SCHEMA_VERSION

__all__ = ["card_json", "splicer"]

_PLAIN_ONLY: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def card_json(card: ScoreCard) -> bytes:
    r"""The card as strict JSON without white space: numbers or null, never NaN; UTF-8.

    ``info`` holds what the reward put there; what JSON cannot carry is written as its text, and a
    number that is not finite as null.

    >>> part = Component(raw=1.0, weight=0.5, transformed=1.0, contribution=0.5, status="ok")
    >>> card = ScoreCard(rollout_id="7", reward=0.5, status="scored", components={"math": part})
    >>> print(*card_json(card).decode().split(',"components":'), sep="\n")  # doctest: +ELLIPSIS
    {"schema_version":1,"reward":0.5,"status":"scored"
    {"math":{"raw":1.0,"weight":0.5,"transformed":1.0,"contribution":0.5,"status":"ok",...
    """
    reward = card.reward
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "reward": reward if type(reward) is float else _number(reward),
        "status": card.status,
    }
    if card.error is not None:
        data["error"] = card.error
    data["components"] = components = {}
    for name, part in card.components.items():
        components[name] = _component(part)
    try:
        return orjson.dumps(data, option=_PLAIN_ONLY)
    except TypeError:  # half a surrogate pair, a whole number of 65 bits, an object of some class
        for part in data["components"].values():
            part["info"] = json_data(dict(part["info"]))
        return _dumps(data).encode()


def splicer(column: str) -> Callable[[bytes, bytes], bytes]:
    r"""Makes the line of a JSON object with one more column; its own bytes stay as they are.

    The object has columns already.

    >>> splicer("rlgym")(b'{"id": 7}', b'{"reward":1.0}')
    b'{"id": 7,"rlgym":{"reward":1.0}}\n'
    """
    between = b",%s:" % json.dumps(column).encode()

    def spliced(row: bytes, card: bytes) -> bytes:
        return b"".join((row[:-1], between, card, b"}\n"))

    return spliced


def _component(part: Component) -> dict[str, Any]:
    # Written out, for millions of rows pass here: no call where a value is a float already.
    raw, transformed, contribution = part.raw, part.transformed, part.contribution
    weight = part.weight
    data: dict[str, Any] = {
        "raw": raw if type(raw) is float else _number(raw),
        "weight": weight if type(weight) is float else _number(weight),
        "transformed": transformed if type(transformed) is float else _number(transformed),
        "contribution": contribution if type(contribution) is float else _number(contribution),
        "status": part.status,
    }
    if part.steps:
        data["steps"] = [(float(step.value), step.char_start, step.char_end) for step in part.steps]
    data["info"] = part.info
    data["error"] = part.error
    return data


def _number(value: float | None) -> float | None:
    """Python's own float of numpy's and of whole numbers."""
    return value if value is None or type(value) is float else float(value)


_dumps: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
