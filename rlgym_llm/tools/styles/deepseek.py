"""Style ``deepseek``: marks of full-width bars around a name and its JSON arguments.

Version 3.1 writes ``<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>``; V3 and R1
write ``function<｜tool▁sep｜>name`` and the arguments in a fence. Both are read, the former is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlgym_llm.tools.json_text import NotJsonError, json_at
from rlgym_llm.tools.styles.scan import marked_blocks, next_mark
from rlgym_llm.tools.tool_call import CallBlock, ToolCall, broken_call, calls_of, one_line_json

__all__ = ["OPEN", "read", "write"]

OPEN = "<｜tool▁call▁begin｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_CLOSE = "<｜tool▁call▁end｜>"
_OPEN_ALL = "<｜tool▁calls▁begin｜>"
_CLOSE_ALL = "<｜tool▁calls▁end｜>"
_LONGEST_NAME = 256
_NAME = re.compile(r"[ \t]*+([^\s{`<]++)")
_FENCE = re.compile(r"\s*+```(?:json)?")
_TAIL = re.compile(rf"\s*+(?:```\s*+)?{_CLOSE}(?:\s*+{_CLOSE_ALL})?")


def read(text: str) -> Iterator[CallBlock]:
    """The calls in order.

    >>> text = '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 2}<｜tool▁call▁end｜>'
    >>> [block.calls[0].arguments for block in read(text)]
    [{'a': 2}]
    """
    return marked_blocks(text, OPEN, _read_block)


def write(calls: Sequence[ToolCall]) -> str:
    """All calls between one pair of outer marks."""
    inner = "".join(
        f"{OPEN}{call.name}{_SEPARATOR}{one_line_json(dict(call.arguments))}{_CLOSE}"
        for call in calls
    )
    return f"{_OPEN_ALL}{inner}{_CLOSE_ALL}"


def _read_block(text: str, last_end: int, start: int) -> CallBlock:
    calls, end = _read_call(text, start + len(OPEN))
    if text.endswith(_OPEN_ALL, last_end, start):
        start -= len(_OPEN_ALL)
    return CallBlock(start=start, end=end, calls=calls)


def _read_call(text: str, begin: int) -> tuple[tuple[ToolCall, ...], int]:
    separator = text.find(_SEPARATOR, begin, begin + _LONGEST_NAME)
    name = text[begin:separator].strip()
    if separator < 0 or not name:
        return broken_call(f"a call is a name, {_SEPARATOR} and arguments"), _open_end(text, begin)
    place = separator + len(_SEPARATOR)
    if name == "function" and (named := _NAME.match(text, place)):
        name, place = named[1], named.end()
    fence = _FENCE.match(text, place)
    try:
        value, end = json_at(text, fence.end() if fence else place)
    except NotJsonError as error:
        problem = f"the arguments are not valid JSON: {error}"
        return broken_call(problem, name=name), _open_end(text, begin)
    tail = _TAIL.match(text, end)
    return calls_of({"name": name, "arguments": value}), tail.end() if tail else end


def _open_end(text: str, begin: int) -> int:
    """Where a call that cannot be read ends: behind its closing mark, or where another opens."""
    limit = next_mark(text, OPEN, begin)
    close = text.find(_CLOSE, begin, limit)
    if close < 0:
        return limit
    tail = _TAIL.match(text, close)
    return tail.end() if tail else limit
