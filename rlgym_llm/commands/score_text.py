"""What ``rlgym score`` shows: its progress, the summary, and what changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlgym_llm.commands.table import print_table
from rlgym_llm.counted import counted
from rlgym_llm.offline.chunks import Chunk
from rlgym_llm.offline.diff import Diff
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.offline.summary_text import component_table, summary_lines

if TYPE_CHECKING:
    from rlgym_llm.offline.summary import Summary

__all__ = ["print_diff", "print_summary", "progress_bar"]


@contextmanager
def progress_bar(num_bytes: int) -> Iterator[Callable[[Chunk], None]]:
    """A bar on a terminal, and silence in a pipe."""
    if not sys.stderr.isatty():
        yield lambda chunk: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    looks = (
        TextColumn("scoring"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]}"),
        TimeRemainingColumn(),
    )
    with Progress(*looks, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scoring", total=num_bytes, lines=counted(0, "line"))
        lines = 0

        def advance(chunk: Chunk) -> None:
            nonlocal lines
            lines += chunk.num_lines
            bar.update(task, advance=chunk.end - chunk.start, lines=counted(lines, "line"))

        yield advance


def print_summary(summary: Summary, settings: OfflineSettings) -> None:
    """What was read, what it came to, and where it is."""
    for file in summary["inputs"]:
        found = ", ".join(f"{field}={column}" for field, column in file["columns"].items())
        print(f"{file['path']}: {file['layout'] or 'empty'}" + (f" ({found})" if found else ""))
    first, *rest = summary_lines(summary)
    print(first)
    print_table(*component_table(summary))
    for line in rest:
        print(line)
    rejects = settings.beside("rejects.jsonl")
    beside = [str(settings.beside("summary.json"))]
    if summary["rows"]["rejected"] and rejects.exists():
        beside.append(str(rejects))
    rate = summary["rows"]["written"] / max(summary["seconds"], 1e-9)
    when = "scored before, in " if summary.get("was_finished") else ""
    print(f"{when}{summary['seconds']:.1f} s, {rate:,.0f} rows/s -> {settings.output}")
    print(f"beside it: {', '.join(beside)}")


def print_diff(diff: Diff, settings: OfflineSettings) -> None:
    """How many verdicts changed, and the first of them."""
    kinds = (
        (diff.num_up, "up"),
        (diff.num_down, "down"),
        (diff.num_won, "judged now and not then"),
        (diff.num_lost, "judged then and not now"),
    )
    told = ", ".join(f"{count:,} {words}" for count, words in kinds if count)
    new = counted(diff.num_unknown, "row is new", "rows are new")
    unknown = f"; {new}" if diff.num_unknown else ""
    print(
        f"{diff.verdict} changed on {counted(diff.num_changed, 'row')}"
        + (f": {told}" if told else "")
        + unknown
    )
    for change in diff.first:
        name = "" if change.id is None else f" (id {change.id})"
        print(f"  row {change.row}{name}: {change.old} -> {change.new}")
    if diff.num_changed:
        more = diff.num_changed - len(diff.first)
        print(
            (f"  and {more:,} more; " if more else "  ") + f"all in {settings.beside('diff.jsonl')}"
        )
