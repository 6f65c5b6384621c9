"""Style ``hermes``, of Hermes and Qwen: ``<tool_call>{"name", "arguments"}</tool_call>``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlgym_llm.tools.json_text import NotJsonError, json_at
from rlgym_llm.tools.styles.scan import marked_blocks, next_mark
from rlgym_llm.tools.tool_call import CallBlock, ToolCall, broken_call, calls_of, one_line_json

__all__ = ["OPEN", "read", "write"]

OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


def read(text: str) -> Iterator[CallBlock]:
    """The calls in order; the closing tag may be missing, as where a stop string ends the turn.

    >>> [block.calls[0].name for block in read('<tool_call>{"name": "now"}</tool_call> or later')]
    ['now']
    """
    return marked_blocks(text, OPEN, _read_block)


def write(calls: Sequence[ToolCall]) -> str:
    """Tags on lines of their own around one line of JSON, for each call."""
    return "\n".join(
        f"{OPEN}\n{one_line_json({'name': call.name, 'arguments': dict(call.arguments)})}\n{_CLOSE}"
        for call in calls
    )


def _read_block(text: str, _: int, start: int) -> CallBlock:
    calls, end = _read_calls(text, start + len(OPEN))
    return CallBlock(start=start, end=end, calls=calls)


def _read_calls(text: str, begin: int) -> tuple[tuple[ToolCall, ...], int]:
    try:
        value, behind = json_at(text, begin)
    except NotJsonError as error:
        close = _close_at(text, begin)
        end = next_mark(text, OPEN, begin) if close is None else close + len(_CLOSE)
        return broken_call(f"the call is not valid JSON: {error}"), end
    close = _close_at(text, behind)
    if close is None:
        return calls_of(value), behind
    if text[behind:close].strip():
        calls = broken_call("the call is not valid JSON: text stands behind the object")
    else:
        calls = calls_of(value)
    return calls, close + len(_CLOSE)


def _close_at(text: str, begin: int) -> int | None:
    """Where the closing tag stands, unless another call opens before it."""
    close = text.find(_CLOSE, begin)
    if close < 0 or text.find(OPEN, begin, close) >= 0:
        return None
    return close
