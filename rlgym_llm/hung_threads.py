"""How many threads may hang: one that is given up keeps its memory, and nothing can stop it."""

from __future__ import annotations

__all__ = ["MOST_HUNG"]

MOST_HUNG = 64
"""Threads of one kind (of a reward, of environments, of tools) that may hang at a time."""
