"""A score card as the JSON that is written beside its row."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rlgym_llm.plain import info_text
from rlgym_llm.scores import Component, ScoreCard
from rlgym_llm.types import SCHEMA_VERSION

__all__ = ["card_json", "splicer"]

_text = json.encoder.encode_basestring  # what json.dumps(..., ensure_ascii=False) does to a str
_ascii = json.encoder.encode_basestring_ascii


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
    try:
        return _card(card, _text, _dumps).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        return _card(card, _ascii, _dumps_ascii).encode()


def splicer(column: str) -> Callable[[bytes, bytes], bytes]:
    r"""Makes the line of a JSON object with one more column; its own bytes stay as they are.

    The object has columns already.

    >>> splicer("rlgym")(b'{"id": 7}', b'{"reward":1.0}')
    b'{"id": 7,"rlgym":{"reward":1.0}}\n'
    """
    between = b",%s:" % _ascii(column).encode()

    def spliced(row: bytes, card: bytes) -> bytes:
        return b"".join((row[:-1], between, card, b"}\n"))

    return spliced


def _card(card: ScoreCard, text: Callable[[str], str], dumps: Callable[[Any], str]) -> str:
    parts = ",".join(
        [f"{text(name)}:{_component(part, text, dumps)}" for name, part in card.components.items()]
    )
    reward = "null" if card.reward is None else repr(float(card.reward))
    error = "" if card.error is None else f',"error":{text(card.error)}'
    return (
        f'{{"schema_version":{SCHEMA_VERSION},"reward":{reward},'
        f'"status":"{card.status}"{error},"components":{{{parts}}}}}'
    )


def _component(part: Component, text: Callable[[str], str], dumps: Callable[[Any], str]) -> str:
    # `float` turns numpy's and whole numbers into Python's; millions of rows pass here.
    raw, transformed, contribution = part.raw, part.transformed, part.contribution
    return (
        f'{{"raw":{"null" if raw is None else repr(float(raw))},'
        f'"weight":{float(part.weight)!r},'
        f'"transformed":{"null" if transformed is None else repr(float(transformed))},'
        f'"contribution":{"null" if contribution is None else repr(float(contribution))},'
        f'"status":"{part.status}",'
        f"{_steps(part) if part.steps else ''}"
        f'"info":{info_text(part.info, dumps) if part.info else "{}"},'
        f'"error":{"null" if part.error is None else text(part.error)}}}'
    )


def _steps(part: Component) -> str:
    listed = ",".join(
        f"[{float(step.value)!r},{step.char_start},{step.char_end}]" for step in part.steps
    )
    return f'"steps":[{listed}],'


def _encoder(text: Callable[[str], str], *, ensure_ascii: bool) -> Callable[[Any], str]:
    """``json.dumps`` without white space, but that its C encoder is made once and not per call."""
    slow = json.JSONEncoder(ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"))
    make: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    if make is None:  # an interpreter without it
        return slow.encode
    # Without a table of containers a cycle is a RecursionError, which is as good here.
    encode = make(None, slow.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(encode(value, 0))


_dumps = _encoder(_text, ensure_ascii=False)
_dumps_ascii = _encoder(_ascii, ensure_ascii=True)
