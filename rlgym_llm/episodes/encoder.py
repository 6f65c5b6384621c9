"""Text to ids, one call at a time: tokenizers are slow enough for threads and not made for them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from rlgym_llm.generate import AsyncGenerator, Generator
from rlgym_llm.types import Message, Prompt

__all__ = ["Encoder", "Tools"]

Tools = Sequence[Any]
"""JSON schemas of an environment's tools."""
_MOST_PROMPTS = 1024


class Encoder:
    """A generator's encoding, safe to call from any thread; siblings share their prompt's ids."""

    def __init__(self, generator: Generator | AsyncGenerator) -> None:
        self._generator = generator
        self._lock = threading.Lock()
        self._prompts: dict[tuple[Prompt, str], tuple[int, ...]] = {}

    def prompt(self, prompt: Prompt, tools: Tools) -> tuple[int, ...]:
        """Ids of an opening prompt."""
        key = (prompt, repr(tools) if tools else "")
        with self._lock:
            try:
                known = self._prompts.get(key)
            except TypeError:  # its messages hold tool calls, which do not hash
                return self._encode(prompt, tools)
            if known is None:
                if len(self._prompts) >= _MOST_PROMPTS:
                    self._prompts.clear()
                known = self._prompts[key] = self._encode(prompt, tools)
            return known

    def reply(self, reply: Sequence[Message], tools: Tools) -> tuple[int, ...]:
        """Ids that a reply adds after a sampled turn."""
        with self._lock:
            if tools:
                return tuple(self._generator.encode_reply(reply, tools=tools))
            return tuple(self._generator.encode_reply(reply))

    def _encode(self, prompt: Prompt, tools: Tools) -> tuple[int, ...]:
        if tools:
            return tuple(self._generator.encode_prompt(prompt, tools=tools))
        return tuple(self._generator.encode_prompt(prompt))
