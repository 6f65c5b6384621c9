"""A generator for tests, without a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from rlgym_llm.generate import GenerateRequest, Tools
from rlgym_llm.types import Completion, FinishReason, Message, Prompt

__all__ = ["ScriptedGenerator"]


class ScriptedGenerator:
    """A `Generator` for tests that says what it is told: one token a character, log-prob 0.

    ``script`` is a list that is cycled through, or a function of the decoded context. A line ends
    early with a stop string of its request. A batch, or one `sample`, takes ``latency_s``.

    >>> from rlgym_llm.generate import SamplingParams
    >>> generator = ScriptedGenerator(["#### 5"])
    >>> request = GenerateRequest(prompt_token_ids=generator.encode_prompt("2 + 3 = ?"),
    ...                           params=SamplingParams(max_new_tokens=16), seed=0)
    >>> generator.generate([request])[0].text
    '#### 5'
    """

    END_TOKEN_ID = 0

    def __init__(
        self,
        script: Sequence[str] | Callable[[str], str],
        *,
        policy_version: int = 0,
        latency_s: float = 0.0,
    ) -> None:
        if not callable(script) and not script:
            raise ValueError("a ScriptedGenerator needs at least one line")
        self._script = script
        self._next = 0
        self._completions: dict[tuple[str, int, tuple[str, ...]], Completion] = {}
        self._policy_version = policy_version
        self._latency_s = latency_s

    @property
    def policy_version(self) -> int:
        """The version given at construction."""
        return self._policy_version

    def encode_prompt(self, prompt: Prompt, tools: Tools = ()) -> tuple[int, ...]:
        """The code points of the prompt, messages as ``role: content`` lines."""
        if isinstance(prompt, str):
            return tuple(map(ord, prompt))
        return self.encode_reply(prompt)

    def encode_reply(self, reply: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """The code points of the messages as ``role: content`` lines."""
        return tuple(ord(c) for m in reply for c in f"{m.role}: {m.content}\n")

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """The next scripted lines, each cut at its request's token budget."""
        time.sleep(self._latency_s)
        return [self._complete(request) for request in requests]

    async def sample(self, request: GenerateRequest) -> Completion:
        """The next scripted line, cut at the request's token budget."""
        await asyncio.sleep(self._latency_s)
        return self._complete(request)

    def close(self) -> None:
        """Holds nothing, so does nothing."""

    async def aclose(self) -> None:
        """Holds nothing, so does nothing."""

    def _complete(self, request: GenerateRequest) -> Completion:
        if callable(self._script):
            text = self._script("".join(map(chr, request.prompt_token_ids)))
        else:
            text = self._script[self._next % len(self._script)]
            self._next += 1
        key = (text, request.params.max_new_tokens, request.params.stop)
        if key not in self._completions:
            self._completions[key] = self._completion(*key)
        return self._completions[key]

    def _completion(self, text: str, budget: int, stop: tuple[str, ...] = ()) -> Completion:
        token_ids = [*map(ord, text), self.END_TOKEN_ID]
        if ends := [text.find(one) + len(one) for one in stop if one in text]:
            token_ids, text = token_ids[: min(ends)], text[: min(ends)]
        is_cut = len(token_ids) > budget
        if is_cut:
            token_ids, text = token_ids[:budget], text[:budget]
        return Completion(
            text=text,
            token_ids=tuple(token_ids),
            logprobs=(0.0,) * len(token_ids),
            token_char_ends=(*range(1, len(text) + 1), len(text))[: len(token_ids)],
            version_spans=((0, len(token_ids), self._policy_version),),
            finish_reason=FinishReason.LENGTH if is_cut else FinishReason.STOP,
        )
