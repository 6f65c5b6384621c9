"""What a generator is: token ids in, sampled token ids with their log-probs out."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rlgym_llm.types import Completion, FinishReason, Message, Prompt

__all__ = [
    "AsyncGenerator",
    "GenerateRequest",
    "Generator",
    "SamplingParams",
    "ScriptedGenerator",
    "Tools",
]

Tools = Sequence[Mapping[str, Any]]
"""JSON schemas of the tools that a policy may call, as chat templates take them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample. ``temperature=0`` is greedy; ``top_k=-1`` and ``top_p=1`` cut nothing."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a completion beside the model's own end-of-text ids; they stay in the ids."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k != -1 and self.top_k < 1:
            raise ValueError(f"top_k must be -1 or at least 1, got {self.top_k}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One completion to sample. The same request gives the same tokens in any batch."""

    prompt_token_ids: tuple[int, ...]
    """The whole context: earlier turns' ids as they were sampled, then the new prompt's."""
    params: SamplingParams
    seed: int


@runtime_checkable
class Generator(Protocol):
    """Samples completions under the newest policy it was given.

    Text becomes ids in two places only, `encode_prompt` and `encode_reply`; what was sampled is
    carried on as ids and never encoded again. Both are called from threads, one call at a time,
    while `generate` may be at work; ``tools`` is given only where an environment has some.
    """

    @property
    def policy_version(self) -> int:
        """Number of the policy that samples now; every sampled token carries it."""
        ...

    def encode_prompt(self, prompt: Prompt, tools: Tools = ()) -> tuple[int, ...]:
        """Ids of an opening prompt, chat template and generation marker included."""
        ...

    def encode_reply(self, reply: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """Ids that a reply adds after a sampled turn, up to the next generation marker."""
        ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion per request, in the order of the requests. Raises GeneratorError."""
        ...

    def close(self) -> None:
        """Gives back memory, processes and files; safe to call twice."""
        ...


@runtime_checkable
class AsyncGenerator(Protocol):
    """A `Generator` that makes its own batches: it is asked for one completion at a time.

    Any number of `sample` calls wait at once on one event loop.
    """

    @property
    def policy_version(self) -> int:
        """Number of the policy that samples now; every sampled token carries it."""
        ...

    def encode_prompt(self, prompt: Prompt, tools: Tools = ()) -> tuple[int, ...]:
        """As in `Generator`."""
        ...

    def encode_reply(self, reply: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """As in `Generator`."""
        ...

    async def sample(self, request: GenerateRequest) -> Completion:
        """The completion of one request. Raises GeneratorError."""
        ...

    async def aclose(self) -> None:
        """Gives back memory, processes and connections; safe to call twice."""
        ...


class ScriptedGenerator:
    """A generator for tests that says what it is told: one token a character, log-prob 0.

    ``script`` is a list that is cycled through, or a function of the decoded context. A batch, or
    one `sample`, takes ``latency_s``.

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
        self._completions: dict[tuple[str, int], Completion] = {}
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
        key = (text, request.params.max_new_tokens)
        if key not in self._completions:
            self._completions[key] = self._completion(*key)
        return self._completions[key]

    def _completion(self, text: str, budget: int) -> Completion:
        token_ids = [*map(ord, text), self.END_TOKEN_ID]
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
