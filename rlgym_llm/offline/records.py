"""What the summary needs of each row, as a few bytes beside the output."""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any

from rlgym_llm.scores import CardStatus, ScoreCard, ScoreStatus

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CARD_STATUSES", "SCORE_STATUSES", "Records", "hash64"]

CARD_STATUSES = tuple(CardStatus)
"""A card's status by its number in a record."""
SCORE_STATUSES = tuple(ScoreStatus)
"""A score's status by its number; one more stands for a component that the card lacks."""
_CARD_NUMBER = {status: number for number, status in enumerate(CARD_STATUSES)}
_SCORE_NUMBER = {status: number for number, status in enumerate(SCORE_STATUSES)}
_ABSENT = (math.nan, math.nan, 0.0, len(SCORE_STATUSES))

_ROW_FIELDS = (
    ("line", "Q"),
    ("length", "I"),
    ("file", "H"),
    ("status", "B"),
    ("label", "b"),
    ("group", "Q"),
    ("answer", "Q"),
    ("chars", "I"),
    ("reward", "d"),
)
_COMPONENT_FIELDS = (("raw", "d"), ("contribution", "d"), ("seconds", "f"), ("status", "B"))
_NUMPY = {"Q": "<u8", "I": "<u4", "H": "<u2", "B": "u1", "b": "i1", "d": "<f8", "f": "<f4"}


def hash64(text: str) -> int:
    """A number that stands for the text, the same in every process; never 0.

    >>> hash64("2 + 3 = ?") == hash64("2 + 3 = ?") != hash64("2 + 4 = ?")
    True
    """
    return _short_hash(text) if len(text) <= _SHORT else _hash64(text)


def _hash64(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") or 1


_SHORT = 64
_short_hash = lru_cache(maxsize=4096)(_hash64)  # answers are short, and many are the same


class Records:
    """How the rows of a run with these components are packed, one after the other.

    ``line`` is the input's, from 1; ``length`` the bytes of the output line; ``label`` 1, 0 or -1
    for none; ``group`` and ``answer`` are hashes, 0 for none; absent numbers are NaN.
    """

    def __init__(self, components: tuple[str, ...]) -> None:
        self.components = components
        codes = [code for _, code in _ROW_FIELDS]
        codes += [code for _, code in _COMPONENT_FIELDS] * len(components)
        struct = Struct("<" + "".join(codes))
        self._pack, self.size = struct.pack, struct.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The records as numpy reads them; a component's fields are called ``0.raw`` and so on."""
        import numpy as np

        fields = [(name, _NUMPY[code]) for name, code in _ROW_FIELDS]
        for index in range(len(self.components)):
            fields += [(f"{index}.{name}", _NUMPY[code]) for name, code in _COMPONENT_FIELDS]
        return np.dtype(fields)

    def pack(
        self,
        card: ScoreCard,
        line: int,
        length: int,
        file: int,
        label: bool | None,
        group: int,
        answer: int,
        chars: int,
    ) -> bytes:
        """One row."""
        nan = math.nan
        fields: list[float] = []
        components, reward = card.components, card.reward
        for name in self.components:
            if name not in components:
                fields += _ABSENT
                continue
            part = components[name]
            raw, contribution = part.raw, part.contribution
            fields += (
                nan if raw is None else raw,
                nan if contribution is None else contribution,
                part.seconds,
                _SCORE_NUMBER[part.status],
            )
        return self._pack(
            line,
            length,
            file,
            _CARD_NUMBER[card.status],
            -1 if label is None else label,
            group,
            answer,
            chars,
            nan if reward is None else reward,
            *fields,
        )
