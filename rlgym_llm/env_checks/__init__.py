"""What `rlgym_llm.check_env` checks, one matter a file."""

from __future__ import annotations

__all__: list[str] = []
