"""What a user may add to the judge's request: nothing that the reward itself writes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlgym_llm.errors import UserError

__all__ = ["check_extra_body"]

_INSTEAD: Mapping[str, str] = {
    "model": "give it as the option model",
    "messages": "the option criteria says what is asked",
    "temperature": "give it as the option temperature",
    "max_tokens": "give it as the option max_tokens",
    "seed": "give it as the option seed",
    "n": "give the option votes",
    "stream": "the reply is read whole",
}
_MAY_BE_NULL = ("temperature", "max_tokens")
"""Some servers refuse these, or want them under another name."""


def check_extra_body(extra_body: Mapping[str, Any]) -> None:
    """Raises UserError, with the way out, for a field that another option stands for.

    >>> check_extra_body({"top_p": 0.5, "max_tokens": None, "max_completion_tokens": 64})
    >>> check_extra_body({"n": 3})
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.UserError: reward 'judge': extra_body sets 'n'; give the option votes
    """
    for name, value in extra_body.items():
        if name in _INSTEAD and not (value is None and name in _MAY_BE_NULL):
            raise UserError(f"reward 'judge': extra_body sets {name!r}; {_INSTEAD[name]}")
