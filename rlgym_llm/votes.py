"""The vote of one answer in maj@k: what a component says the final answer is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["said_answer", "tells_answer"]

_KEYS = ("answer_form", "normal", "answer")
"""Where a score's ``info`` may hold the final answer, its normal form first."""


def tells_answer(info: Mapping[str, Any]) -> bool:
    """Whether the ``info`` of a score tells what the final answer is, were it none."""
    return any(key in info for key in _KEYS)


def said_answer(info: Mapping[str, Any]) -> str | None:
    """The final answer as text, in its normal form where there is one; None where there is none.

    >>> said_answer({"answer": "0.50", "answer_form": "1/2"}), said_answer({"answer": None})
    ('1/2', None)
    """
    for key in _KEYS:
        if (answer := info.get(key)) is not None:
            return str(answer)
    return None
