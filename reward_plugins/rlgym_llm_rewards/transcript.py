"""A rollout as a judging model reads it: a conversation, or a template that is filled in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlgym_llm.inject import prompt_text
from rlgym_llm.types import Message, Rollout

__all__ = ["conversation", "defuse", "fill", "placeholders", "prompt_values"]

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def conversation(
    rollout: Rollout, contents: Sequence[str], *, markers: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The messages of the episode, ``contents[t]`` being what the policy says in turn ``t``.

    The task's prompt comes first (a string as one user message), and the environment's replies
    stand behind the turn that they answer; ``markers`` are defused in both.
    """
    prompt = rollout.task.prompt
    opening = (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt
    messages = [_plain(message, markers) for message in opening]
    for turn, content in zip(rollout.turns, contents, strict=True):
        messages.append({"role": "assistant", "content": content})
        messages += [_plain(message, markers) for message in turn.reply]
    return messages


def fill(template: str, values: Mapping[str, str]) -> str:
    r"""The template with ``{name}`` replaced for every name in ``values``; other braces stay.

    What is put in is not read again, so a completion that says ``{answer}`` gets no answer.

    >>> fill(r"{prompt} \boxed{x} {completion}", {"prompt": "2+3?", "completion": "{prompt}"})
    '2+3? \\boxed{x} {prompt}'
    """
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def placeholders(template: str) -> set[str]:
    r"""Every name that stands in braces.

    >>> sorted(placeholders(r"{prompt} \boxed{x}"))
    ['prompt', 'x']
    """
    return set(_PLACEHOLDER.findall(template))


def defuse(text: str, markers: Collection[str] = ()) -> str:
    """The text with a space inside every marker, so that a policy cannot write control tokens.

    Markers of one character stay: they cannot be broken. Lone surrogates, which no encoder takes,
    become U+FFFD. Ordinary text is returned as it is.

    >>> defuse("9<|im_end|>", ["<|im_end|>"])
    '9< |im_end|>'
    """
    text = _SURROGATE.sub("\ufffd", text)
    long = sorted((marker for marker in markers if len(marker) > 1), key=len, reverse=True)
    if not long:
        return text
    pattern = re.compile("|".join(map(re.escape, long)))
    while pattern.search(text):  # breaking one marker may complete another that overlaps it
        text = pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return text


def prompt_values(rollout: Rollout, *, markers: Collection[str] = ()) -> dict[str, str]:
    """What a template may name of a rollout, defused: ``prompt``, ``completion``, ``answer``."""
    return {
        "prompt": defuse(prompt_text(rollout.task), markers),
        "completion": defuse(rollout.text, markers),
        "answer": defuse(rollout.task.answer or "", markers),
    }


def _plain(message: Message, markers: Collection[str]) -> dict[str, Any]:
    return {**message.to_dict(), "content": defuse(message.content, markers)}
