"""Where sampled ids complete a stop string, told token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["StopStrings"]

_BROKEN = "\N{REPLACEMENT CHARACTER}"
"""What a part of a character decodes to."""


class StopStrings:
    """Tells whether a completion's last token completes a stop string in its text.

    The text is that of all its ids, special tokens included. Asked after every token, it says so at
    the first one after which the text contains the string. Of a completion of any length it
    decodes as many tokens as the string has bytes, and a few more.

    With the ids of ``"</ans"`` and ``"wer> ok"`` and the stop ``"</answer>"`` the second token
    completes it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def are_met(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the text of ``ids`` contains one of ``stop``, which it did not a token before."""
        if not stop:
            return False
        tail = self._decode(ids[self._start(ids, max(len(one.encode()) for one in stop)) :])
        found = [one for one in stop if one in tail]
        if not found:
            return False
        text = self._decode(ids)  # a decoder may treat the beginning of a tail as that of a text
        return any(one in text for one in found)

    def _start(self, ids: Sequence[int], num_bytes: int) -> int:
        """Where the tail begins that holds all of a string which ends in the last token."""
        start, needed = len(ids), num_bytes + 1  # one before it, to lose a leading blank
        while start and needed > 0:
            start -= 1
            needed -= self._text(ids[start]) != ""  # such as an id that the tokenizer lacks
        while start and _BROKEN in self._text(ids[start]):  # never begins within a character
            start -= 1
        return start

    def _text(self, id_: int) -> str:
        """What a token says by itself."""
        text = self._texts.get(id_)
        if text is None:
            text = self._texts[id_] = self._decode([id_])
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            [int(id_) for id_ in ids],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,  # it takes back blanks that were there
        )
        return text
