"""Conversations as data files hold them, OpenAI's and ShareGPT's alike, as our messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlgym_llm.types import Message, Prompt, Role

__all__ = ["is_conversation", "reply_text", "split_reply", "to_messages", "to_prompt"]

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
"""Who speaks, by OpenAI's word (``role``) or ShareGPT's (``from``)."""


def is_conversation(value: Any) -> bool:
    """Whether the value is a list of messages, each ``{role, content}`` or ``{from, value}``.

    >>> is_conversation([{"from": "human", "value": "2+3?"}]), is_conversation("2+3?")
    (True, False)
    """
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(item, Mapping) and ("role" in item or "from" in item) for item in value)
    )


def to_messages(value: Sequence[Any]) -> tuple[Message, ...]:
    """The conversation as messages. Raises ValueError, naming the message, for anything unknown.

    Text parts of a content list are joined; ``developer`` is ``system``; keys that a chat template
    does not take, such as ``weight``, are left out.

    >>> to_messages([{"from": "human", "value": "2+3?"}, {"from": "gpt", "value": "5"}])[1]
    Message(role='assistant', content='5', name=None, tool_calls=(), tool_call_id=None)
    """
    return tuple(_message(item, number) for number, item in enumerate(value, start=1))


def to_prompt(value: Any) -> Prompt:
    """A prompt of a string or a conversation. Raises ValueError where it, or a question, is empty.

    >>> to_prompt("2 + 3 = ?")
    '2 + 3 = ?'
    """
    if isinstance(value, str):
        if not value or value.isspace():
            raise ValueError("the prompt is empty")
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(f"a prompt is text or a list of messages, not {type(value).__name__}")
    messages = to_messages(value)
    if not any(message.content.strip() for message in messages):
        raise ValueError("the prompt is empty: no message holds text")
    for number, message in enumerate(messages, start=1):
        if message.role == "user" and not message.content.strip():
            raise ValueError(f"the prompt is empty: message {number}, of the user, holds no text")
    return messages


def split_reply(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], str | None]:
    """What was asked and what was answered: the last message where the assistant wrote it.

    >>> chat = to_messages([{"role": "user", "content": "2+3?"}])
    >>> split_reply((*chat, Message(role="assistant", content="5")))[1], split_reply(chat)[1]
    ('5', None)
    """
    if messages and messages[-1].role == "assistant":
        return messages[:-1], messages[-1].content
    return messages, None


def reply_text(value: Any) -> str:
    """The completion of a string or of messages: the assistant's texts, a newline between.

    >>> reply_text([{"role": "assistant", "content": "5"}])
    '5'
    """
    if isinstance(value, str):
        return value
    if not is_conversation(value):
        raise ValueError(f"a completion is text or a list of messages, not {type(value).__name__}")
    return "\n".join(m.content for m in to_messages(value) if m.role == "assistant")


def _message(item: Any, number: int) -> Message:
    if not isinstance(item, Mapping):
        raise ValueError(f"message {number} is a {type(item).__name__}, not an object")
    if item.get("role") is not None:
        said, content = item["role"], item.get("content")
    elif item.get("from") is not None:
        said, content = item["from"], item.get("value")
    else:
        raise ValueError(
            f"message {number} has neither 'role' and 'content' nor 'from' and 'value' "
            f"(keys: {', '.join(map(str, item)) or 'none'})"
        )
    role = _ROLES.get(str(said))
    if role is None:
        raise ValueError(f"message {number} is by {said!r}, none of {', '.join(_ROLES)}")
    calls = tuple(item.get("tool_calls") or ())
    return Message(
        role=role,
        content=_content(content, number, has_calls=bool(calls)),
        name=item.get("name"),
        tool_calls=calls,
        tool_call_id=item.get("tool_call_id"),
    )


def _content(content: Any, number: int, *, has_calls: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and has_calls:
        return ""
    if isinstance(content, list | tuple):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "".join(texts)
    raise ValueError(f"message {number} holds {type(content).__name__} where text belongs")
