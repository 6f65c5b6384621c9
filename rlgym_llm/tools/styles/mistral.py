"""Style ``mistral``: ``[TOOL_CALLS]`` and a JSON list, or ``[TOOL_CALLS]name[ARGS]{...}``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlgym_llm.tools.json_text import NotJsonError, json_at
from rlgym_llm.tools.styles.scan import marked_blocks, next_mark
from rlgym_llm.tools.tool_call import CallBlock, ToolCall, broken_call, calls_of, one_line_json

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
    return marked_blocks(text, OPEN, _read_block)


def write(calls: Sequence[ToolCall]) -> str:
    """One JSON list, with the ids."""
    return OPEN + one_line_json(
        [{"name": call.name, "arguments": dict(call.arguments), "id": call.id} for call in calls]
    )


def _read_block(text: str, _: int, start: int) -> CallBlock:
    begin = start + len(OPEN)
    named = _NAMED.match(text, begin)
    try:
        value, end = json_at(text, named.end() if named else begin)
    except NotJsonError as error:
        name = named[1] if named else ""
        calls = broken_call(f"the call is not valid JSON: {error}", name=name)
        return CallBlock(start=start, end=next_mark(text, OPEN, begin), calls=calls)
    if named:
        value = {"name": named[1], "arguments": value, "id": named[2]}
    return CallBlock(start=start, end=end, calls=calls_of(value))
