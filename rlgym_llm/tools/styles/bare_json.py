"""Style ``json``: the whole text is a call or a list of calls, or a fence holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlgym_llm.tools.json_text import NotJsonError, json_at
from rlgym_llm.tools.tool_call import (
    MOST_CALLS,
    CallBlock,
    ToolCall,
    broken_call,
    calls_of,
    one_line_json,
)

__all__ = ["read", "write"]

_FENCE = re.compile(r"```(?:json|tool_call)?[ \t]*\n")
_FENCE_END = re.compile(r"\s*```")
_LOOKS_LIKE_CALL = re.compile(r'\s*+(?:\[\s*+)?\{\s*+"(?:name|function|tool_calls)"')


def read(text: str) -> Iterator[CallBlock]:
    r"""The calls; JSON that is no call stays text.

    >>> text = 'So:\n```json\n{"name": "add", "arguments": {"a": 2}}\n```'
    >>> [block.calls[0].arguments for block in read(text)]
    [{'a': 2}]
    >>> list(read('{"answer": 5}'))
    []
    """
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        block = _read_one(text, 0, 0)
        if block is not None and not text[block.end :].strip():
            yield block
            return
    end = 0
    for _ in range(MOST_CALLS):
        fence = _FENCE.search(text, end)
        if fence is None:
            return
        block = _read_one(text, fence.start(), fence.end())
        end = fence.end() if block is None else block.end
        if block is not None:
            yield block


def write(calls: Sequence[ToolCall]) -> str:
    """A fence, in it an object for one call and a list for several."""
    values = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    return f"```json\n{one_line_json(values[0] if len(values) == 1 else values)}\n```"


def _read_one(text: str, start: int, begin: int) -> CallBlock | None:
    """The block of the JSON at ``begin``; None where it was not meant as a call."""
    try:
        value, end = json_at(text, begin)
    except NotJsonError as error:
        if not _LOOKS_LIKE_CALL.match(text, begin):
            return None
        close = text.find("```", begin)
        end = len(text) if close < 0 else close + 3
        calls = broken_call(f"the call is not valid JSON: {error}")
        return CallBlock(start=start, end=end, calls=calls)
    if not _is_meant(value):
        return None
    tail = _FENCE_END.match(text, end) if begin else None
    return CallBlock(start=start, end=tail.end() if tail else end, calls=calls_of(value))


def _is_meant(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_meant(entry) for entry in value[:MOST_CALLS])
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("tool_calls"), list) or isinstance(value.get("function"), Mapping):
        return True
    return "name" in value and ("arguments" in value or "parameters" in value)
