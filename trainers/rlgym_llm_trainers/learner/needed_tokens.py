"""Which tokens of a sequence a pack needs: what the budget of a micro-batch counts, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NeededTokens", "needed_tokens"]


@dataclass(frozen=True, slots=True)
class NeededTokens:
    """The first tokens of a sequence, up to the last state that is read."""

    count: int
    """All of them, the prompt's included; 0 where nothing is read."""
    prompt: tuple[int, ...]
    """The ids up to the first state read, which sequences of equal ones can share."""


def needed_tokens(token_ids: Sequence[int], is_read: Sequence[bool]) -> NeededTokens:
    """What is computed of one sequence, given at which positions its states are read.

    To train [4, 5] after the prompt [7, 8], states are read one position earlier each:

    >>> needed_tokens([7, 8, 4, 5], [False, True, True])
    NeededTokens(count=3, prompt=(7, 8))
    """
    if not any(is_read):
        return NeededTokens(0, ())
    num_prompt = is_read.index(True) + 1
    return NeededTokens(len(is_read) - is_read[::-1].index(True), tuple(token_ids[:num_prompt]))
