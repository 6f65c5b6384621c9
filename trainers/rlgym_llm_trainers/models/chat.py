"""Conversations to ids by a model's chat template: an opening prompt, and a reply after a turn.

A template renders whole conversations, and what it renders of earlier turns need not be what was
sampled: Qwen3 leaves out earlier thinking, for one. So only the opening is rendered as it stands.
A reply is rendered behind a placeholder for the sampled turn, and what stands after it is added to
the ids of that turn: the context grows, and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlgym_llm.errors import GeneratorError, UserError, one_line
from rlgym_llm.generate import Tools
from rlgym_llm.types import Message, Prompt
from rlgym_llm_trainers.models.token_side import ModelText

__all__ = ["ChatEncoder", "prompt_ids", "reply_ids"]

_SAMPLED = "sampled-turn"
"""Stands for what was sampled: no blanks, which a template may strip."""


class ChatEncoder:
    """The half of a generator that turns conversations into ids, by its model's own template."""

    def __init__(self, model: ModelText) -> None:
        self._text_side = model

    def encode_prompt(self, prompt: Prompt, tools: Tools = ()) -> tuple[int, ...]:
        """Ids of the prompt by the model's chat template, or by its tokenizer for a string.

        Raises UserError for a conversation where the model has no chat template.
        """
        model = self._text_side
        return prompt_ids(model.tokenizer, prompt, tools, path=model.path)

    def encode_reply(self, reply: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """Ids that the chat template adds for ``reply`` after a sampled assistant turn.

        Raises GeneratorError where the template has no place for such a reply.
        """
        model = self._text_side
        return reply_ids(model.tokenizer, reply, eos_token_ids=model.eos_token_ids, path=model.path)


def prompt_ids(tokenizer: Any, prompt: Prompt, tools: Tools = (), *, path: str) -> tuple[int, ...]:
    """Ids of an opening prompt, generation marker included; ``path`` names the model in errors.

    A string is tokenized as it stands, with one BOS where the tokenizer wants one, also if the
    string brings it. Raises UserError for a conversation that the model has no template for.
    """
    if isinstance(prompt, str):
        has_bos = bool(tokenizer.bos_token) and prompt.startswith(tokenizer.bos_token)
        return tuple(tokenizer(prompt, add_special_tokens=not has_bos)["input_ids"])
    if not tokenizer.chat_template:
        raise UserError(
            f"--model {path} has no chat template, and the environment's prompts are "
            "conversations; take an instruct model, or string prompts "
            "(--env.kwargs '{prompt_style: string}')"
        )
    messages = [message.to_dict() for message in prompt]
    ids = _apply(tokenizer, messages, tools, path)
    if tools and ids == _apply(tokenizer, messages, (), path):
        raise UserError(
            f"--model {path}: its chat template does not show tools; let the environment tell of "
            "them (--env.kwargs '{tool_prompt: system}')"
        )
    if not ids:
        raise UserError(f"--model {path}: its chat template renders nothing")
    return ids


def reply_ids(
    tokenizer: Any, reply: Sequence[Message], *, eos_token_ids: Iterable[int], path: str
) -> tuple[int, ...]:
    """Ids that the template adds for ``reply`` after a sampled turn, up to the next marker.

    The turn's end-of-text token was sampled with it and is not repeated; what the template puts
    behind it is. Tools are told in the opening prompt, not again here. Raises GeneratorError where
    the template has no place for such a reply.
    """
    tail, needs_end = _behind_turn(tokenizer, reply, path)
    ends = {tokenizer.decode([id_]): id_ for id_ in eos_token_ids}
    place, end = min(
        ((tail.find(end), end) for end in ends if end and end in tail), default=(-1, "")
    )
    start = tail.find(reply[0].content.strip()) if reply else -1
    if place < 0 or 0 <= start < place:  # the template ends no turn, or this is the reply's end
        if needs_end:
            raise _no_place(path, reply, "it needs a call, and its turns have no end")
        return tuple(tokenizer(tail, add_special_tokens=False)["input_ids"])
    # Encoded with the end token in front, as it stands in the context, then without it.
    ids = tokenizer(tail[place:], add_special_tokens=False)["input_ids"]
    if ids[0] != ends[end]:
        raise _no_place(path, reply, f"its end-of-text {end!r} is no single token")
    return tuple(ids[1:])


def _apply(
    tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Tools, path: str
) -> tuple[int, ...]:
    try:
        encoded = tokenizer.apply_chat_template(
            messages, tools=list(tools) or None, add_generation_prompt=True, return_dict=True
        )
    except Exception as error:  # a template is a program and raises what it likes
        roles = " ".join(message["role"] for message in messages)
        raise UserError(
            f"--model {path}: its chat template fails on a conversation of {roles}: "
            f"{one_line(error)}"
        ) from error
    return tuple(encoded["input_ids"])


def _behind_turn(tokenizer: Any, reply: Sequence[Message], path: str) -> tuple[str, bool]:
    """What the template renders behind a sampled turn, and whether an end of it must be found."""
    sampled = _SAMPLED
    while any(sampled in message.content for message in reply):
        sampled += "-"
    turns: list[dict[str, Any]] = [{"role": "assistant", "content": sampled}]
    if any(message.role == "tool" for message in reply):
        # Some templates want to have seen the calls that are answered here.
        turns.append({**turns[0], "tool_calls": _calls(reply, sampled)})
    problem = "it does not show what the assistant said"
    for turn in turns:
        messages = [{"role": "user", "content": "."}, turn, *(one.to_dict() for one in reply)]
        try:
            rendered = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is a program and raises what it likes
            problem = one_line(error)
            continue
        if sampled in rendered:
            return rendered[rendered.rfind(sampled) + len(sampled) :], "tool_calls" in turn
    raise _no_place(path, reply, problem)


def _no_place(path: str, reply: Sequence[Message], problem: str) -> GeneratorError:
    roles = " ".join(message.role for message in reply) or "nothing"
    return GeneratorError(
        f"the chat template of {path} cannot add a reply of {roles} to a sampled turn: {problem}"
    )


def _calls(reply: Sequence[Message], name: str) -> list[dict[str, Any]]:
    ids = [message.tool_call_id for message in reply if message.role == "tool"]
    return [
        {
            "type": "function",
            "id": id_ or f"call{place:05}",
            "function": {"name": name, "arguments": {}},
        }
        for place, id_ in enumerate(ids)
    ]
