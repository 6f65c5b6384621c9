"""The words by which a model is told of its tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlgym_llm.tools.parse import ToolStyle, write_tool_calls
from rlgym_llm.tools.tool_call import ToolCall, one_line_json
from rlgym_llm.types import Message, Prompt

__all__ = ["describe_tools", "with_instructions"]


def describe_tools(schemas: Iterable[Mapping[str, Any]], *, style: ToolStyle = "auto") -> str:
    """The schemas, one a line, and how a call of that style is written.

    >>> print(describe_tools([{"type": "function", "function": {"name": "now"}}], style="pythonic"))
    You can call tools:
    <tools>
    {"type": "function", "function": {"name": "now"}}
    </tools>
    A call of the tool NAME is written like this, and its result is the next message:
    [NAME(ARGUMENT="value")]
    """
    lines = "\n".join(one_line_json(schema) for schema in schemas)
    example = ToolCall(id="call00000", name="NAME", arguments={"ARGUMENT": "value"})
    written = write_tool_calls([example], style=style).replace("'value'", '"value"')
    return (
        f"You can call tools:\n<tools>\n{lines}\n</tools>\n"
        "A call of the tool NAME is written like this, and its result is the next message:\n"
        f"{written}"
    )


def with_instructions(prompt: Prompt, words: str) -> Prompt:
    r"""The prompt with the words at the end of its system message, or in one of their own.

    >>> with_instructions("2 + 3 = ?", "Be brief.")
    'Be brief.\n\n2 + 3 = ?'
    """
    if isinstance(prompt, str):
        return f"{words}\n\n{prompt}"
    if prompt[0].role != "system":
        return (Message(role="system", content=words), *prompt)
    return (Message(role="system", content=f"{prompt[0].content}\n\n{words}"), *prompt[1:])
