"""Style ``llama3``: ``<|python_tag|>{"name", "parameters"}``, several parted by semicolons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlgym_llm.tools.json_text import NotJsonError, json_at
from rlgym_llm.tools.tool_call import (
    MOST_CALLS,
    CallBlock,
    ToolCall,
    broken_call,
    calls_of,
    one_line_json,
)

__all__ = ["OPEN", "read", "write"]

OPEN = "<|python_tag|>"
_BARE = re.compile(r'\s*(?=\{\s*"(?:name|type|function)")')
_BETWEEN = re.compile(r"\s*[;,]?\s*")


def read(text: str) -> Iterator[CallBlock]:
    """The calls behind the tag, which may be missing where the whole text is calls.

    >>> [call.name for block in read('{"name": "a"}; {"name": "b"}') for call in block.calls]
    ['a', 'b']
    """
    start = text.find(OPEN)
    if start >= 0:
        begin = start + len(OPEN)
    elif bare := _BARE.match(text):
        start = begin = bare.end()
    else:
        return
    calls: list[ToolCall] = []
    end = begin
    while end < len(text) and len(calls) < MOST_CALLS:
        try:
            value, end = json_at(text, end)
        except NotJsonError as error:
            calls += broken_call(f"the call is not valid JSON: {error}")
            end = len(text)
        else:
            calls += calls_of(value)
            between = _BETWEEN.match(text, end)
            end = between.end() if between else end
    if calls:
        yield CallBlock(start=start, end=end, calls=tuple(calls))


def write(calls: Sequence[ToolCall]) -> str:
    """The tag, and all calls behind it."""
    return OPEN + "; ".join(
        one_line_json({"name": call.name, "parameters": dict(call.arguments)}) for call in calls
    )
