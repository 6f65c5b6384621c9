"""What an episode is before it runs: its spec, its budgets, and the seeds that follow from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TypedDict

from rlgym_llm.types import Task

__all__ = ["EpisodeLimits", "EpisodeSpec", "room_for_turn", "stable_seed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One episode to run, as plain data."""

    id: str
    """Id of the rollout that comes out."""
    task: Task
    group_id: str
    sample_index: int
    """Which of the G siblings this is, from 0."""
    seed: int
    """Seeds the environment's reset and the first turn's sampling."""


class EpisodeLimits(TypedDict, total=False):
    """Budgets of an episode, none by default. One that runs out truncates it: status ``ok``.

    The deadline ``step_timeout_s`` is the exception: what misses it has failed.
    """

    max_turns: int | None
    """Turns the runner allows; an environment may allow fewer."""
    max_prompt_tokens: int | None
    """Tokens of the opening prompt."""
    max_turn_tokens: int | None
    """Sampled tokens of one turn."""
    max_rollout_tokens: int | None
    """Sampled tokens over all turns of one rollout."""
    max_context_tokens: int | None
    """Prompt, replies and sampled tokens together: the model's context."""
    max_seconds: float | None
    """Of one episode, looked at before every turn."""
    step_timeout_s: float | None
    """Deadline of one ``reset`` or ``step``, from when a thread takes it up: status ``timeout``."""


def stable_seed(*parts: int | str) -> int:
    """A seed below 2**53 that is the same in every process: SHA-256 of the parts as JSON.

    >>> stable_seed(1, "a") == stable_seed(1, "a") != stable_seed("1", "a")
    True
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 11


def room_for_turn(
    max_new_tokens: int,
    *,
    num_sampled: int,
    num_context: int,
    max_turn_tokens: int | None = None,
    max_rollout_tokens: int | None = None,
    max_context_tokens: int | None = None,
) -> int:
    """How many tokens the next turn may sample; 0 or less means that the episode is truncated.

    >>> room_for_turn(400, num_sampled=650, num_context=700, max_rollout_tokens=1000)
    350
    >>> room_for_turn(400, num_sampled=300, num_context=540, max_context_tokens=512)
    -28
    """
    room = max_new_tokens
    if max_turn_tokens is not None:
        room = min(room, max_turn_tokens)
    if max_rollout_tokens is not None:
        room = min(room, max_rollout_tokens - num_sampled)
    if max_context_tokens is not None:
        room = min(room, max_context_tokens - num_context)
    return room
