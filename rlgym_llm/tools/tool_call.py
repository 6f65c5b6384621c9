"""ToolCall: what a policy asks of a tool, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "MOST_CALLS",
    "CallBlock",
    "ToolCall",
    "broken_call",
    "call_id",
    "calls_of",
    "one_line_json",
]

MOST_CALLS = 64
"""Calls that are read in one text; what stands behind them is text. It keeps reading linear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call, or what was meant as one: ``error`` then says why it cannot be read.

    >>> ToolCall(id="call00000", name="add", arguments={"a": 2}).to_dict()["function"]
    {'name': 'add', 'arguments': {'a': 2}}
    """

    id: str = ""
    """Names the call in the message that answers it: nine letters or digits, as Mistral asks."""
    name: str
    """Empty where it could not be read."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """Why the call cannot be read, in words for the model."""

    def to_dict(self) -> dict[str, Any]:
        """The call as chat templates take it among an assistant message's ``tool_calls``."""
        function = {"name": self.name, "arguments": dict(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBlock:
    """The stretch ``[start, end)`` of a text that holds these calls."""

    start: int
    end: int
    calls: tuple[ToolCall, ...]


def call_id(number: int) -> str:
    """The id of an episode's call ``number``, from 0.

    >>> call_id(7)
    'call00007'
    """
    return f"call{number:05d}"


def broken_call(error: str, *, name: str = "") -> tuple[ToolCall, ...]:
    """What stands for a call that cannot be read."""
    return (ToolCall(name=name, error=error),)


def calls_of(value: Any) -> tuple[ToolCall, ...]:
    """The calls that a JSON value stands for: an object or a list of them.

    ``{"name", "arguments"}`` is a call, ``parameters`` stands for ``arguments``, and OpenAI's
    ``{"function": {...}}`` and arguments that are JSON in a string are taken. Whatever is wrong
    becomes the call's ``error``.

    >>> calls_of({"name": "add", "parameters": {"a": 2}})[0].arguments
    {'a': 2}
    >>> calls_of([3])[0].error
    'a call is an object with "name" and "arguments", not 3'
    """
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    entries: Sequence[Any] = value if isinstance(value, list) else [value]
    return tuple(_call_of(entry) for entry in entries[:MOST_CALLS])


def one_line_json(value: Any) -> str:
    r"""JSON on one line, in which no markup closes: ``</`` is written with a backslash.

    >>> one_line_json({"a": "</tool_call>"})
    '{"a": "<\\/tool_call>"}'
    """
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\/")


def _call_of(entry: Any) -> ToolCall:
    given_id = entry.get("id") if isinstance(entry, Mapping) else None
    if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
        entry = entry["function"]
    if not isinstance(entry, Mapping) or "name" not in entry:
        found = one_line_json(entry)
        shown = found if len(found) <= 60 else f"{found[:60]}..."
        return ToolCall(
            name="", error=f'a call is an object with "name" and "arguments", not {shown}'
        )
    name = entry["name"]
    if not isinstance(name, str):
        return ToolCall(name="", error='"name" must be a string')
    arguments = entry.get("arguments", entry.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ToolCall(name=name, error='"arguments" is not valid JSON')
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return ToolCall(name=name, error='"arguments" must be an object')
    return ToolCall(
        id=given_id if isinstance(given_id, str) else "", name=name, arguments=arguments
    )
