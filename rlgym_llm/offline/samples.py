"""The samples of a chunk, in order, with the bad lines between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlgym_llm.errors import DataError
from rlgym_llm.layouts.layout import Layout, Sample
from rlgym_llm.offline.chunks import Chunk
from rlgym_llm.offline.lines import BadLine, BadRowError, chunk_lines, parse_row
from rlgym_llm.offline.parquet_input import piece_rows, row_json
from rlgym_llm.offline.parquet_output import keeps_columns
from rlgym_llm.offline.rollouts import to_rollout
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.types import Rollout
from rlgym_llm.unchecked import unchecked_tuple

__all__ = ["Item", "Unit", "chunk_items", "chunk_units", "group_of", "splits_rows"]


class Item(NamedTuple):
    """One completion to score."""

    line: int
    sample_index: int
    """Which of the samples of its line."""
    sample: Sample
    rollout: Rollout
    row: bytes
    """The JSON object that is written, without the score."""


_item = unchecked_tuple(Item)


@dataclass(frozen=True, slots=True)
class Unit:
    """Items that are scored in one call, and the bad lines before and between them."""

    items: list[Item]
    bad: list[BadLine]


def splits_rows(row: Mapping[str, Any], layout: Layout) -> bool:
    """Whether a row holds several completions, each of which is written as a row of its own."""
    return any(_columns(sample, row, layout) is not row for sample in layout.to_samples(row))


def _columns(sample: Sample, row: Mapping[str, Any], layout: Layout) -> Mapping[str, Any]:
    """What is written for a sample: the row itself, unless it holds several completions."""
    if layout.name == "verl":
        replies = layout.completion
        if replies is not None and isinstance(row.get(replies), list):
            return {**row, replies: sample.completion}
    return sample.columns


def chunk_items(
    settings: OfflineSettings, chunk: Chunk, start: tuple[int, int]
) -> Iterator[Item | BadLine]:
    """What a chunk holds, from this sample of this line on."""
    file, column = settings.inputs[chunk.file], settings.score_column
    entries: Iterator[Entry]
    if file.format == "parquet":
        entries = _parquet_entries(settings, chunk)
    else:
        entries = chunk_lines(settings.at(file.path), chunk)
    first_line, first_sample = start
    for number, source in entries:
        if number < first_line:
            continue
        text, row = source if isinstance(source, tuple) else (source, None)
        try:
            if row is None:
                row = parse_row(text)
            elif isinstance(row, BadRowError):
                raise row
            items = _items(number, text, row, file.layout, column)
        except ValueError as error:  # also what no task or completion may be
            yield BadLine.of(file.path, number, str(error), text or repr(row).encode())
            continue
        yield from items if number > first_line else items[first_sample:]


def group_of(row: Mapping[str, Any], number: int, layout: Layout | None) -> str | None:
    """The group that a row belongs to; None where it is no row that can be scored."""
    if layout is None:
        return None
    try:
        sample = layout.to_samples(row, number)[0]
    except (DataError, IndexError):
        return None
    return sample.id if sample.group is None else sample.group


Entry = tuple[int, bytes | tuple[bytes, dict[str, Any] | BadRowError]]
"""The number of a line, and the line itself; or what is written for it where its row stays as it
is, and the row."""


def _parquet_entries(settings: OfflineSettings, chunk: Chunk) -> Iterator[Entry]:
    keeps = keeps_columns(settings)
    for number, row in enumerate(piece_rows(settings.work, chunk), start=chunk.first_line):
        if keeps:
            yield number, (b'{"row":%d}' % number, row)
            continue
        try:
            yield number, (row_json(row), row)
        except ValueError as error:
            yield number, (b"", BadRowError(f"cannot be written as JSON: {error}"))


def _items(
    number: int, text: bytes, row: dict[str, Any], layout: Layout | None, score_column: str
) -> list[Item]:
    if layout is None:
        raise BadRowError("the file's first rows did not say what its columns are")
    items: list[Item] = []
    for sample in layout.to_samples(row, number):
        columns = _columns(sample, row, layout)
        if score_column in columns:
            raise BadRowError(f"column {score_column!r} is there already")
        data = text if columns is row else row_json(columns)
        items.append(_item((number, len(items), sample, to_rollout(sample), data)))
    return items


def chunk_units(
    entries: Iterable[Item | BadLine], size: Callable[[], int], *, by_group: bool
) -> Iterator[Unit]:
    """Shares the entries out: ``size()`` items each, asked anew for every unit.

    ``by_group`` keeps siblings, which stand side by side, in one unit, so that it may be larger.
    """
    items: list[Item] = []
    bad: list[BadLine] = []
    wanted = size()
    for entry in entries:
        if isinstance(entry, BadLine):
            bad.append(entry)
            continue
        if by_group and len(items) >= wanted and _is_of_another(items[-1], entry):
            later = [line for line in bad if line.line > items[-1].line]
            yield Unit(items, bad[: len(bad) - len(later)])
            items, bad, wanted = [], later, size()
        items.append(entry)
        if not by_group and len(items) >= wanted:
            yield Unit(items, bad)
            items, bad, wanted = [], [], size()
    if items or bad:
        yield Unit(items, bad)


def _is_of_another(last: Item, item: Item) -> bool:
    return last.rollout.group_id != item.rollout.group_id
