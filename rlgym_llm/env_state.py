"""Where an episode stands, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlgym_llm.types import Prompt, Task, Turn

__all__ = ["STATE_VERSION", "EnvState"]

STATE_VERSION = 1
"""Version of `EnvState`; bumped when a field changes meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvState:
    """Where an episode stands: `TextEnv.set_state` goes on from it, as often as one likes.

    Plain data: it pickles where the environment's own part does.
    """

    schema_version: int = STATE_VERSION
    task: Task
    index: int | None
    """None for a task that was given to `reset`."""
    observation: Prompt
    turns: tuple[Turn, ...]
    seed: int
    """What the random generator was seeded with."""
    rng_state: Mapping[str, Any]
    """State of ``np_random``'s bit generator."""
    is_over: bool
    own: Any = None
    """What the subclass keeps beside that, from `TextEnv.own_state`."""
