"""The frozen records that flow through the house, from a task to its rollouts.

Everything here is plain data: it pickles, it compares by value, and it says no at construction
when its fields disagree. Behaviour lives in functions over these records.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from rlgym_llm.kept_sets import KeptSets

__all__ = [
    "SCHEMA_VERSION",
    "Action",
    "Completion",
    "FinishReason",
    "Message",
    "Prompt",
    "Role",
    "Rollout",
    "RolloutGroup",
    "RolloutStatus",
    "Task",
    "Turn",
    "VersionSpan",
]

SCHEMA_VERSION = 1
"""Version of the records as they are written to files; bump it when a field changes meaning."""

Role = Literal["system", "user", "assistant", "tool"]


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """An end-of-text token or a stop string: the policy chose to end."""
    LENGTH = "length"
    """The token budget ran out."""
    ABORT = "abort"
    """The generator gave up; the tokens so far are valid."""


class RolloutStatus(StrEnum):
    """How a rollout ended, and whose fault it was where it failed."""

    OK = "ok"
    ENVIRONMENT_ERROR = "environment_error"
    GENERATOR_ERROR = "generator_error"
    TOOL_ERROR = "tool_error"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation, as chat templates take it.

    >>> Message(role="user", content="2 + 3 = ?").to_dict()
    {'role': 'user', 'content': '2 + 3 = ?'}
    """

    role: Role
    content: str
    name: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Calls that an assistant message asks for, as OpenAI-style dictionaries."""
    tool_call_id: str | None = None
    """The call that a tool message answers."""

    def __post_init__(self) -> None:
        if self.role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"message role {self.role!r} is none of system, user, assistant, tool")
        if not isinstance(self.content, str):
            raise ValueError(f"message content must be str, got {type(self.content).__name__}")

    def to_dict(self) -> dict[str, Any]:
        """The message as a chat template's dictionary, without the fields that are unset."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.name is not None:
            out["name"] = self.name
        if self.tool_calls:
            out["tool_calls"] = [dict(call) for call in self.tool_calls]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """The inverse of `to_dict`; unknown keys raise ValueError."""
        known = {"role", "content", "name", "tool_calls", "tool_call_id"}
        if extra := sorted(set(data) - known):
            raise ValueError(f"a message has no field {extra[0]!r} (fields: {sorted(known)})")
        return cls(
            role=data["role"],
            content=data["content"],
            name=data.get("name"),
            tool_calls=tuple(data.get("tool_calls") or ()),
            tool_call_id=data.get("tool_call_id"),
        )


Prompt = str | tuple[Message, ...]
"""What a policy is asked: a conversation, or a plain string for base models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem: what is asked, what the right answer is, and where it came from.

    >>> Task(prompt="2 + 3 = ?", answer="5").id == Task(prompt="2 + 3 = ?", answer="5").id
    True
    """

    prompt: Prompt
    answer: str | None = None
    """Ground truth in text, or None where the environment alone judges."""
    data_source: str = "unknown"
    """Names the data set in metrics: ``val-core/<data_source>/acc/mean@1``."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the row; rewards may ask for them by name."""
    id: str = ""
    """Content hash by default, so that the same problem has the same id in every process."""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("a task needs a prompt that is not empty")
        if not self.id:
            prompt: Any = self.prompt
            if not isinstance(prompt, str):
                prompt = [message.to_dict() for message in prompt]
            payload = json.dumps([prompt, self.answer, self.data_source], sort_keys=True)
            digest = hashlib.sha256(payload.encode()).hexdigest()[:16]
            object.__setattr__(self, "id", digest)


VersionSpan = tuple[int, int, int]
"""(start, end, policy_version): tokens [start, end) were sampled under that version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a generator sampled for one request: text, its own token ids, and their log-probs.

    ``logprobs[t] = log p(token_ids[t] | prompt, token_ids[:t])`` under the sampling distribution
    (temperature included), so ``len(logprobs) == len(token_ids)``. A closing end-of-text token is
    among the ids, as it was sampled; ``text`` leaves special tokens out.

    >>> done = Completion(text="5", token_ids=(8, 2), logprobs=(-0.1, -0.2),
    ...                   finish_reason=FinishReason.STOP, version_spans=((0, 2, 0),))
    >>> done.num_tokens
    2
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    """One per token, or None where the generator cannot tell (evaluation only)."""
    token_char_ends: tuple[int, ...] | None = None
    """Where each token's text ends in ``text``, so that a step or turn maps to a token exactly."""
    version_spans: tuple[VersionSpan, ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    raw_text: str | None = None
    """The text with its special tokens, where it differs from ``text``: tool calls may stand in
    them."""
    sampled_by: str | None = None
    """Which of several generators sampled it, such as ``actor-1``; None where there is one."""
    kept_token_ids: KeptSets | None = None
    """The ids that top-k and top-p left to each token, which log-probs are normalised over; None
    where nothing was to be cut. Stored rollouts leave it out: it is large, and of use to the
    training step alone."""

    def __post_init__(self) -> None:
        if type(self.finish_reason) is not FinishReason:
            object.__setattr__(self, "finish_reason", FinishReason(self.finish_reason))
        num_tokens = len(self.token_ids)
        for name in ("logprobs", "token_char_ends", "kept_token_ids"):
            values = getattr(self, name)
            if values is not None and len(values) != num_tokens:
                raise ValueError(f"completion has {num_tokens} tokens but {len(values)} {name}")
        if self.logprobs is not None and any(math.isnan(value) for value in self.logprobs):
            raise ValueError("completion holds a NaN log-prob")

    @property
    def num_tokens(self) -> int:
        """Number of sampled tokens, the end-of-text token included."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a policy does in `TextEnv.step`: the text, and what the generator knows about it."""

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    finish_reason: FinishReason = FinishReason.STOP
    raw_text: str | None = None
    """As in `Completion`."""

    @classmethod
    def from_completion(cls, completion: Completion) -> Action:
        """The action that a completion is."""
        return cls(
            text=completion.text,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            raw_text=completion.raw_text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange: the prompt ids it added, what was sampled, and the environment's reply."""

    new_prompt_token_ids: tuple[int, ...]
    """Only the ids that this turn adds to the context; never re-encoded from text."""
    completion: Completion
    reply: tuple[Message, ...] = ()
    env_reward: float | None = None
    """The environment's own reward for this step, None where it gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One finished episode of one task. A failed episode is data too: status and error tell.

    ``terminated`` says the task is over, ``truncated`` says a budget ran out.
    """

    id: str
    task: Task
    group_id: str
    sample_index: int
    """Which of the G siblings this is, from 0."""
    seed: int
    turns: tuple[Turn, ...]
    terminated: bool = False
    truncated: bool = False
    status: RolloutStatus = RolloutStatus.OK
    error: str | None = None
    """Who failed and how, where status is not ``ok``."""

    def __post_init__(self) -> None:
        if type(self.status) is not RolloutStatus:
            object.__setattr__(self, "status", RolloutStatus(self.status))
        if self.status is RolloutStatus.OK and self.error is not None:
            raise ValueError(f"rollout {self.id} carries an error but its status is ok")

    @property
    def text(self) -> str:
        """All sampled text, turns joined by a newline."""
        if len(self.turns) == 1:
            return self.turns[0].completion.text
        return "\n".join([turn.completion.text for turn in self.turns])

    @property
    def num_turns(self) -> int:
        """Number of turns played."""
        return len(self.turns)

    @property
    def num_tokens(self) -> int:
        """Number of sampled tokens over all turns."""
        return sum(turn.completion.num_tokens for turn in self.turns)

    @property
    def min_policy_version(self) -> int | None:
        """Oldest policy version any token was sampled under; None where no token tells."""
        return min(self._versions(), default=None)

    @property
    def max_policy_version(self) -> int | None:
        """Newest policy version any token was sampled under; None where no token tells."""
        return max(self._versions(), default=None)

    def _versions(self) -> list[int]:
        return [span[2] for turn in self.turns for span in turn.completion.version_spans]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The G siblings of one task, in the order of their sample index."""

    group_id: str
    task: Task
    rollouts: tuple[Rollout, ...]

    def __post_init__(self) -> None:
        for rollout in self.rollouts:
            if rollout.group_id != self.group_id:
                raise ValueError(f"rollout {rollout.id} is of group {rollout.group_id}")
