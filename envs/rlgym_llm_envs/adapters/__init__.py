"""Environments of other projects as ours. None of those is imported before it is asked for."""

from __future__ import annotations

__all__: list[str] = []
