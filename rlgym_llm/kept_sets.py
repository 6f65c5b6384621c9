"""Which tokens top-k and top-p left to sample from, one set a token, as flat plain data."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["KeptSets"]

_ID: Final = "i"
"""Type code of an id: four bytes, in the byte order of the machine."""
_ID_SIZE = array(_ID).itemsize


@dataclass(frozen=True, slots=True)
class KeptSets:
    """The kept set of each of T tokens: the ids that could have been sampled in its place.

    Flat, since a set may hold thousands of ids: it pickles as one piece of memory, and it compares
    and hashes by value. ``kept[t]`` is the set of token t, None where nothing was cut.

    >>> kept = KeptSets.of([(3, 7), None, (5,)])
    >>> kept.counts, len(kept.ids), kept[0], kept[1]
    ((2, 0, 1), 12, (3, 7), None)

    Raises ValueError where counts and ids do not go together.
    """

    counts: tuple[int, ...]
    """Size of each token's set, [T]; 0 where nothing was cut."""
    ids: bytes
    """The ids of all sets one after the other, as 32-bit integers of the machine's byte order."""

    def __post_init__(self) -> None:
        if sum(self.counts) * _ID_SIZE != len(self.ids) or min(self.counts, default=0) < 0:
            raise ValueError(
                f"kept sets of {sum(self.counts)} ids come with {len(self.ids)} bytes, not "
                f"{_ID_SIZE} for each id"
            )

    @classmethod
    def of(cls, sets: Iterable[Sequence[int] | None]) -> KeptSets:
        """From one set a token, None where nothing was cut; ValueError for an empty set."""
        counts, ids = [], array(_ID)
        for kept in sets:
            if kept is not None and not len(kept):
                raise ValueError("a kept set is empty, so nothing could have been sampled from it")
            counts.append(len(kept or ()))
            ids.extend(kept or ())
        return cls(tuple(counts), ids.tobytes())

    @classmethod
    def join(cls, parts: Iterable[KeptSets]) -> KeptSets:
        """The tokens of all parts in order."""
        parts = list(parts)
        counts = tuple(count for part in parts for count in part.counts)
        return cls(counts, b"".join(part.ids for part in parts))

    @classmethod
    def uncut(cls, num_tokens: int) -> KeptSets:
        """Of tokens of which each was sampled from all ids, or not sampled at all."""
        return cls((0,) * num_tokens, b"")

    def __len__(self) -> int:
        """Number of tokens T."""
        return len(self.counts)

    def __getitem__(self, place: int) -> tuple[int, ...] | None:
        """The set of the token at ``place``, None where nothing was cut."""
        count = self.counts[place]
        if not count:
            return None
        start = sum(self.counts[: place % len(self.counts)])
        return tuple(memoryview(self.ids).cast(_ID)[start : start + count])
