"""The records of all rows, read part by part, so that memory does not grow with the output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.offline.merge import part_names
from rlgym_llm.offline.part import part_file
from rlgym_llm.offline.records import Records

__all__ = ["Block", "RecordFiles", "mixed"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Block(NamedTuple):
    """The records of one part."""

    rows: NDArray[Any]
    """One record a row of the output; the fields are those of `Records`."""
    first_row: int
    """Place of its first row in the output, from 0."""
    first_byte: int
    """Where its first line begins in the output."""

    def raw(self, component: int) -> NDArray[np.float64]:
        """Raw scores; NaN where there is none."""
        return np.asarray(self.rows[f"{component}.raw"])

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Places of the rows in the output."""
        return self.first_row + np.arange(len(self.rows), dtype=np.int64)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where their lines begin in the output, in bytes."""
        lengths = self.rows["length"].astype(np.int64)
        return self.first_byte + np.cumsum(lengths) - lengths


class RecordFiles:
    """Iterates over the blocks, any number of times."""

    def __init__(self, folder: Path, num_parts: int, records: Records) -> None:
        self.components = records.components
        self._paths = [part_file(folder, name, "records") for name in part_names(num_parts)]
        self._dtype = records.dtype

    def __iter__(self) -> Iterator[Block]:
        row = byte = 0
        for path in self._paths:
            rows = np.fromfile(path, dtype=self._dtype)
            yield Block(rows, row, byte)
            row += len(rows)
            byte += int(rows["length"].sum(dtype=np.int64))


def mixed(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of each number (splitmix64), by which rows are drawn: the same rows every time."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) * _GOLDEN + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
