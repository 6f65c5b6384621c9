"""The vote of one answer in maj@k, the same for stored samples and for an evaluation's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["vote"]

_KEYS = ("answer_form", "normal", "answer")
"""Where a score's ``info`` may hold the final answer, its normal form first."""


def vote(info: Mapping[str, Any], text: str, *, is_right: bool) -> str | Literal[True] | None:
    """What a sample votes for: the final answer that its score's ``info`` holds, None for none.

    Right answers are all one vote, True: they equal the gold answer, however they are written. In
    its normal form an answer is compared where there is one. Where ``info`` has no place for an
    answer, the whole ``text`` of the sample is the answer.

    >>> vote({"answer": "0.50", "answer_form": "1/2"}, "It is 0.50.", is_right=False)
    '1/2'
    >>> vote({"answer": None}, "Hm.", is_right=False), vote({}, " 7", is_right=False)
    (None, '7')
    """
    if is_right:
        return True
    for key in _KEYS:
        if (answer := info.get(key)) is not None:
            return str(answer)
    return None if any(key in info for key in _KEYS) else text.strip()
