"""Finds the calls of a style that opens each with one mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlgym_llm.tools.tool_call import MOST_CALLS, CallBlock

__all__ = ["marked_blocks", "next_mark"]

ReadBlock = Callable[[str, int, int], CallBlock]
"""The block of the mark at an index, given the text and where the block before it ended."""


def marked_blocks(text: str, mark: str, read_block: ReadBlock) -> Iterator[CallBlock]:
    """A block for each mark that stands outside of the blocks before it, at most 64.

    >>> def one(text, end, at):
    ...     return CallBlock(start=at, end=at + 1, calls=())
    >>> blocks = marked_blocks("a!b!c", "!", one)
    >>> [block.start for block in blocks]
    [1, 3]
    """
    end = 0
    for _ in range(MOST_CALLS):
        start = text.find(mark, end)
        if start < 0:
            return
        block = read_block(text, end, start)
        end = block.end
        yield block


def next_mark(text: str, mark: str, begin: int) -> int:
    """Where the next mark stands, or the end of the text.

    >>> next_mark("ab!", "!", 0), next_mark("ab!", "!", 3)
    (2, 3)
    """
    found = text.find(mark, begin)
    return len(text) if found < 0 else found
