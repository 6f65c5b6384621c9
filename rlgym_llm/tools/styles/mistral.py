"""Style ``mistral``: ``[TOOL_CALLS]`` and a JSON list, or ``[TOOL_CALLS]name[ARGS]{...}``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlgym_llm.tools.call import MOST_CALLS, CallBlock, ToolCall, broken_call, calls_of, dumps
from rlgym_llm.tools.json_text import NotJsonError, json_at

__all__ = ["OPEN", "read", "write"]

OPEN = "[TOOL_CALLS]"
_NAMED = re.compile(
    r"\s*+([\w.-]{1,256}+)\s*+(?:\[CALL_ID\]\s*+(\w{1,64}+)\s*+)?(?:\[ARGS\]\s*+)?(?=\{)"
)


def read(text: str) -> Iterator[CallBlock]:
    """The calls in order, in either form.

    >>> [block.calls[0].arguments for block in read('[TOOL_CALLS]add[ARGS]{"a": 2}')]
    [{'a': 2}]
    """
    end = 0
    for _ in range(MOST_CALLS):
        start = text.find(OPEN, end)
        if start < 0:
            return
        begin = start + len(OPEN)
        named = _NAMED.match(text, begin)
        try:
            value, end = json_at(text, named.end() if named else begin)
        except NotJsonError as error:
            following = text.find(OPEN, begin)
            end = len(text) if following < 0 else following
            name = named[1] if named else ""
            calls = broken_call(f"the call is not valid JSON: {error}", name=name)
        else:
            if named:
                value = {"name": named[1], "arguments": value, "id": named[2]}
            calls = calls_of(value)
        yield CallBlock(start=start, end=end, calls=calls)


def write(calls: Sequence[ToolCall]) -> str:
    """One JSON list, with the ids."""
    return OPEN + dumps(
        [{"name": call.name, "arguments": dict(call.arguments), "id": call.id} for call in calls]
    )
