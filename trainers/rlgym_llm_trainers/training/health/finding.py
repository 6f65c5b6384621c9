"""What a health rule has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlgym_llm.config_health import HealthRule

__all__ = ["Finding", "Severity"]

Severity = Literal["warning", "error"]
"""An error makes what is learned wrong; a warning makes it slow, or worth a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that looks wrong: the figures, the likely cause, and the keys to turn.

    >>> finding = Finding(rule="truncation", seen="40% of the responses are cut",
    ...                   cause="they get no chance to end", keys=("data.max_response_length",))
    >>> finding.line
    'truncation: 40% of the responses are cut; they get no chance to end; see --data.max_response_length'
    """  # noqa: E501

    rule: HealthRule
    severity: Severity = "warning"
    seen: str
    """What was seen, with its figures."""
    cause: str
    """The likely cause."""
    keys: tuple[str, ...]
    """Keys of the configuration to turn, the likeliest first; empty where no key helps."""

    @property
    def line(self) -> str:
        """The finding as one line."""
        keys = " or ".join(f"--{key}" for key in self.keys)
        return f"{self.rule}: {self.seen}; {self.cause}" + (f"; see {keys}" if keys else "")
