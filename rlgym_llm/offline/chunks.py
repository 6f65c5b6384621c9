"""The pieces of the input that workers take, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["LONGEST_LINE", "Chunk", "jsonl_chunks"]

LONGEST_LINE = 64 << 20
"""Bytes of a line above which it is set aside unread: memory stays bounded."""
_BLOCK = 1 << 20

GroupKey = Callable[[bytes, int], str | None]
"""The group that a line belongs to; None where the line is blank or bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole lines of one file (of parquet: whole rows), the same however many workers there are.

    Plain JSON data, so that a worker is sent where to read rather than what.
    """

    index: int
    """Place in the output, from 0."""
    file: int
    """Which of the inputs."""
    start: int
    """First byte; of parquet the first row, from 0."""
    end: int
    """End, not included."""
    first_line: int
    """Number of its first line or row, from 1."""
    num_lines: int

    @property
    def name(self) -> str:
        """What its files in the work folder are called."""
        return f"part-{self.index:08d}"


def jsonl_chunks(
    path: str | Path,
    *,
    file: int,
    index: int,
    chunk_bytes: int,
    limit: int | None = None,
    group_key: GroupKey | None = None,
) -> Iterator[Chunk]:
    """Walks the file in pieces of about ``chunk_bytes``, cut at line ends; memory is constant.

    A line that is longer than that is a piece of its own. With ``group_key`` a piece ends where
    the group changes. ``limit`` is the number of lines to take.
    """
    start, line = 0, 1
    with Path(path).open("rb") as data:
        while limit is None or line <= limit:
            end, num_lines = _next_end(data, start, chunk_bytes)
            if end == start:
                return
            if limit is not None and line + num_lines - 1 > limit:
                end, num_lines = _after_lines(data, start, limit - line + 1)
            elif group_key is not None:
                end, num_lines = _group_end(data, start, end, (line, num_lines), group_key)
            yield Chunk(
                index=index, file=file, start=start, end=end, first_line=line, num_lines=num_lines
            )
            index, start, line = index + 1, end, line + num_lines


def _next_end(data: BinaryIO, start: int, chunk_bytes: int) -> tuple[int, int]:
    """Where the piece that begins at ``start`` ends, and its number of lines."""
    data.seek(start)
    block = data.read(chunk_bytes)
    cut = block.rfind(b"\n") + 1
    if len(block) < chunk_bytes:  # the rest of the file, its last line ended or not
        return start + len(block), block.count(b"\n") + (cut < len(block))
    if cut:
        return start + cut, block.count(b"\n", 0, cut)
    end = start + len(block)
    while block := data.read(_BLOCK):
        if cut := block.find(b"\n") + 1:
            return end + cut, 1
        end += len(block)
    return end, 1


def _after_lines(data: BinaryIO, start: int, num_lines: int) -> tuple[int, int]:
    data.seek(start)
    end, left = start, num_lines
    while left and (block := data.readline(_BLOCK)):
        end += len(block)
        left -= block.endswith(b"\n")
    return end, num_lines


def _group_end(
    data: BinaryIO, start: int, end: int, lines: tuple[int, int], group_key: GroupKey
) -> tuple[int, int]:
    """The end moved on to where the last group ends; it holds one group's lines at a time."""
    first, num_lines = lines
    data.seek(start)
    last = None
    number = first + num_lines
    for line in reversed(data.read(end - start).splitlines()):
        number -= 1
        if (last := group_key(line, number)) is not None:
            break
    while last is not None and (line := data.readline(LONGEST_LINE)):
        key = group_key(line, first + num_lines)
        if key is not None and key != last:
            break
        end += len(line)
        num_lines += 1
    return end, num_lines
