"""How many cores there are to work with."""

from __future__ import annotations

import os

__all__ = ["num_cores"]


def num_cores() -> int:
    """How many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
