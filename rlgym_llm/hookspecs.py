"""The hooks that a plugin may implement, and the two markers for them."""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from rlgym_llm.scores import ScoreCard
from rlgym_llm.specs import Kind, Spec

__all__ = ["PROJECT_NAME", "hookimpl", "hookspec"]

PROJECT_NAME = "rlgym_llm"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)


@hookspec
def rlgym_register(kind: Kind) -> list[Spec]:  # type: ignore[empty-body]
    """Returns the specs of that kind which the plugin brings; an empty list for other kinds."""


@hookspec
def rlgym_scored(cards: Sequence[ScoreCard]) -> None:
    """Called after a batch of rollouts was scored; for observers, never to change a score."""
