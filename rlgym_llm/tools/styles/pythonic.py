"""Style ``pythonic``, of Llama 4: a line ``[name(key=value), ...]`` of Python's literals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlgym_llm.tools.literals import NotLiteralError, read_calls
from rlgym_llm.tools.tool_call import MOST_CALLS, CallBlock, ToolCall, broken_call

__all__ = ["read", "write"]

_OPEN = re.compile(r"^[ \t]*+(?=\[\s*+[^\W\d][\w.]*+\()", re.MULTILINE)


def read(text: str) -> Iterator[CallBlock]:
    """The calls of the first line that begins as a list of calls does; it may go over several.

    >>> [call.arguments for block in read("[add(a=1), add(a=2)]") for call in block.calls]
    [{'a': 1}, {'a': 2}]
    """
    opening = _OPEN.search(text)
    if opening is None:
        return
    try:
        found, end = read_calls(text, opening.end(), MOST_CALLS)
    except NotLiteralError as error:
        calls, end = broken_call(f"the call cannot be read: {error}"), len(text)
    else:
        calls = tuple(ToolCall(name=name, arguments=arguments) for name, arguments in found)
    yield CallBlock(start=opening.start(), end=end, calls=calls)


def write(calls: Sequence[ToolCall]) -> str:
    """One list of calls on one line."""
    return f"[{', '.join(map(_written, calls))}]"


def _written(call: ToolCall) -> str:
    inner = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({inner})".replace("</", "<\\/")
