"""parse_tool_calls and write_tool_calls: between what a model writes and its calls as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from rlgym_llm.errors import UserError, did_you_mean
from rlgym_llm.tools.styles import bare_json, deepseek, hermes, llama3, mistral, pythonic, xml
from rlgym_llm.tools.tool_call import MOST_CALLS, CallBlock, ToolCall, call_id

__all__ = ["ToolStyle", "check_style", "parse_tool_calls", "write_tool_calls"]

ToolStyle = Literal["auto", "hermes", "llama3", "mistral", "deepseek", "pythonic", "xml", "json"]
"""How calls are written; ``auto`` reads all of them and writes ``hermes``."""

_THINKING_OPEN, _THINKING_CLOSE = "<think>", "</think>"
_END = re.compile(
    r"\s*(?:<\|(?:im_end|eot_id|eom_id|end_of_text|endoftext|eot|eom|python_end)\|>|</s>"
    r"|<｜end▁of▁sentence｜>)\Z"
)
_LONGEST_END = 64
_MOST_ENDS = 4


class _Style(NamedTuple):
    read: Callable[[str], Iterable[CallBlock]]
    write: Callable[[Sequence[ToolCall]], str]


_STYLES: Mapping[str, _Style] = {
    "hermes": _Style(hermes.read, hermes.write),
    "llama3": _Style(llama3.read, llama3.write),
    "mistral": _Style(mistral.read, mistral.write),
    "deepseek": _Style(deepseek.read, deepseek.write),
    "pythonic": _Style(pythonic.read, pythonic.write),
    "xml": _Style(xml.read, xml.write),
    "json": _Style(bare_json.read, bare_json.write),
}
_OPENINGS = {
    hermes.OPEN: "hermes",
    llama3.OPEN: "llama3",
    mistral.OPEN: "mistral",
    deepseek.OPEN: "deepseek",
    xml.OPEN: "xml",
}
_XML_INSIDE = re.compile(rf"{hermes.OPEN}\s*+{xml.OPEN}")
_BARE = ("json", "pythonic")


def parse_tool_calls(text: str, *, style: ToolStyle = "auto") -> tuple[str, tuple[ToolCall, ...]]:
    """The text outside the calls, and the calls; in linear time, and it never raises for a text.

    A call that cannot be read is one with an ``error``. What stands in ``<think>`` is no call, and
    end-of-turn tokens at the end go. ``auto`` takes the style whose mark comes first; without a
    mark, JSON or ``[name(...)]`` counts where it reads as calls without an error. At most 64 calls
    are read. Raises UserError for a style that does not exist.

    >>> parse_tool_calls('Let me see. <tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>')
    ('Let me see.', (ToolCall(id='call00000', name='add', arguments={'a': 2}, error=None),))
    """  # noqa: E501
    check_style(style)
    thinking, body = _split_thinking(_without_end(text))
    outside = [thinking]
    calls: list[ToolCall] = []
    end = 0
    for block in _blocks(body, style):
        if len(calls) + len(block.calls) > MOST_CALLS:
            break
        outside.append(body[end : block.start])
        calls += block.calls
        end = block.end
    if not calls:
        return thinking + body, ()
    outside.append(body[end:])
    numbered = tuple(
        ToolCall(
            id=call.id or call_id(number),
            name=call.name,
            arguments=call.arguments,
            error=call.error,
        )
        for number, call in enumerate(calls)
    )
    return "".join(outside).strip(), numbered


def write_tool_calls(calls: Sequence[ToolCall], *, style: ToolStyle = "auto") -> str:
    """The calls as a model of that style writes them; `parse_tool_calls` reads them back.

    >>> write_tool_calls([ToolCall(name="add", arguments={"a": 2})], style="pythonic")
    '[add(a=2)]'
    """
    check_style(style)
    return _STYLES["hermes" if style == "auto" else style].write(calls)


def check_style(style: str) -> None:
    """Raises UserError, naming the nearest one, for a style that does not exist."""
    if style not in (styles := get_args(ToolStyle)):
        hint = did_you_mean(str(style), styles)
        raise UserError(f"unknown tool style {style!r}{hint} (known: {', '.join(styles)})")


def _blocks(text: str, style: str) -> Iterable[CallBlock]:
    if style != "auto":
        return _STYLES[style].read(text)
    if marked := _first_style(text):
        return _STYLES[marked].read(text)
    for bare in _BARE:
        blocks = tuple(_STYLES[bare].read(text))
        if blocks and not any(call.error for block in blocks for call in block.calls):
            return blocks
    return ()


def _first_style(text: str) -> str | None:
    """The style whose mark comes first."""
    places = [(place, mark) for mark in _OPENINGS if (place := text.find(mark)) >= 0]
    if not places:
        return None
    place, mark = min(places)
    return "xml" if _XML_INSIDE.match(text, place) else _OPENINGS[mark]


def _split_thinking(text: str) -> tuple[str, str]:
    """Thinking with its tags, and what stands behind it; thinking that does not end is all."""
    close = text.find(_THINKING_CLOSE)
    if close >= 0:
        end = close + len(_THINKING_CLOSE)
        return text[:end], text[end:]
    if text.lstrip().startswith(_THINKING_OPEN):
        return text, ""
    return "", text


def _without_end(text: str) -> str:
    """Without the special tokens that end a turn."""
    end = len(text)
    for _ in range(_MOST_ENDS):
        found = _END.search(text, max(0, end - _LONGEST_END), end)
        if found is None:
            break
        end = found.start()
    return text[:end]
