"""What a generator is: token ids in, sampled token ids with their log-probs out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rlgym_llm.types import Completion, Message, Prompt

__all__ = [
    "AsyncGenerator",
    "GenerateRequest",
    "Generator",
    "SamplingParams",
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
    stop: tuple[str, ...] = ()
    """Strings that end a completion with the token that completes one of them, in the text with its
    special tokens. Nothing is cut: the ids stay as sampled, and the text is that of all of them."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k != -1 and self.top_k < 1:
            raise ValueError(f"top_k must be -1 or at least 1, got {self.top_k}")
        if isinstance(self.stop, str) or not all(self.stop):
            raise ValueError(f"stop must be strings with something in them, got {self.stop!r}")


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
