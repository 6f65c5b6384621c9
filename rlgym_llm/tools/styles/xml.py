"""Style ``xml``, of Qwen3-Coder: ``<function=name><parameter=key>value</parameter></function>``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rlgym_llm.tools.json_text import NotJsonError, json_at
from rlgym_llm.tools.styles.scan import marked_blocks, next_mark
from rlgym_llm.tools.tool_call import CallBlock, ToolCall, broken_call, one_line_json

__all__ = ["OPEN", "read", "write"]

OPEN = "<function="
_CLOSE = "</function>"
_PARAMETER = "<parameter="
_PARAMETER_CLOSE = "</parameter>"
_OUTER_OPEN = re.compile(r"<tool_call>\s*\Z")
_OUTER_CLOSE = re.compile(r"\s*+</tool_call>")
_LONGEST_NAME = 256
_MOST_PARAMETERS = 256
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[-+][0-9]{1,3})?")


def read(text: str) -> Iterator[CallBlock]:
    r"""The calls in order. A value that is written as JSON is JSON, anything else is text.

    >>> text = "<function=add>\n<parameter=a>\n2\n</parameter>\n</function>"
    >>> [block.calls[0].arguments for block in read(text)]
    [{'a': 2}]
    """
    return marked_blocks(text, OPEN, _read_block)


def write(calls: Sequence[ToolCall]) -> str:
    """Every tag on a line of its own, in the outer tags that the models were trained on."""
    return "\n".join(map(_written, calls))


def _read_block(text: str, last_end: int, start: int) -> CallBlock:
    calls, end = _read_call(text, start + len(OPEN))
    if outer := _OUTER_OPEN.search(text, max(last_end, start - 40), start):
        start = outer.start()
    outer_close = _OUTER_CLOSE.match(text, end)
    return CallBlock(start=start, end=outer_close.end() if outer_close else end, calls=calls)


def _read_call(text: str, begin: int) -> tuple[tuple[ToolCall, ...], int]:
    limit = next_mark(text, OPEN, begin)
    head = text.find(">", begin, min(limit, begin + _LONGEST_NAME))
    if head < 0:
        return broken_call("the function's tag is not closed"), limit
    name = text[begin:head].strip().strip("\"'")
    place = head + 1
    arguments: dict[str, Any] = {}
    for _ in range(_MOST_PARAMETERS):
        parameter = text.find(_PARAMETER, place, limit)
        close = text.find(_CLOSE, place, limit)
        if parameter < 0 or 0 <= close < parameter:
            break
        head = text.find(">", parameter, parameter + _LONGEST_NAME)
        value_end = -1 if head < 0 else text.find(_PARAMETER_CLOSE, head)
        if value_end < 0:
            return broken_call("a parameter's tag is not closed", name=name), limit
        key = text[parameter + len(_PARAMETER) : head].strip().strip("\"'")
        arguments[key] = _value(text[head + 1 : value_end])
        place = value_end + len(_PARAMETER_CLOSE)
        if limit < place:  # the value held what looked like the next call
            limit = next_mark(text, OPEN, place)
    close = text.find(_CLOSE, place, limit)
    if text[place : limit if close < 0 else close].strip() and close >= 0:
        return broken_call("text stands between the parameters", name=name), close + len(_CLOSE)
    end = place if close < 0 else close + len(_CLOSE)
    return (ToolCall(name=name, arguments=arguments),), end


def _value(text: str) -> Any:
    """What a parameter's text says; a number only where it is written as JSON writes it."""
    text = text.removeprefix("\n").removesuffix("\n")
    if text[:1] in ('"', "{", "["):
        try:
            value, end = json_at(text, 0)
        except NotJsonError:
            return text
        return text if text[end:].strip() else value
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    if _NUMBER.fullmatch(text):
        number = float(text) if "." in text or "e" in text else int(text)
        return number if repr(number) == text else text
    return text


def _written(call: ToolCall) -> str:
    parameters = "".join(
        f"{_PARAMETER}{key}>\n{_written_value(value)}\n{_PARAMETER_CLOSE}\n"
        for key, value in call.arguments.items()
    )
    return f"<tool_call>\n{OPEN}{call.name}>\n{parameters}{_CLOSE}\n</tool_call>"


def _written_value(value: Any) -> str:
    if isinstance(value, str) and "<" not in value and _value(f"\n{value}\n") == value:
        return value
    return one_line_json(value).replace("<", "\\u003c")
