"""What ``rlgym score`` reads and what it writes: no file is both, and nobody's file is replaced."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from rlgym_llm.errors import UserError
from rlgym_llm.rows.beside import beside

__all__ = ["check_paths", "check_report_path"]


def check_paths(options: argparse.Namespace, output: str) -> None:
    """Raises UserError where the run would replace what it reads, or what is no output of it."""
    reads = list(_reads(options))
    writes: dict[Path, str] = {}
    for what, path in _writes(options, output):
        for other, read in reads:
            if path.resolve() == read.resolve():
                raise UserError(f"{path} is {other} and {what} too: give one of them another name")
        if path.resolve() in writes:
            raise UserError(f"{path} is {writes[path.resolve()]} and {what}: give two names")
        writes[path.resolve()] = what
    if options.diff is not None and not Path(options.diff).is_file():
        raise UserError(f"--diff {options.diff}: there is no such file")
    summary = beside(output, "summary.json")
    if summary.exists() and not (options.overwrite or _is_summary(summary)):
        raise UserError(f"{summary} exists and is no summary: give another name with -o")
    if options.report is not None:
        check_report_path(options.report, overwrite=options.overwrite)


def check_report_path(path: str | Path, *, overwrite: bool = False) -> None:
    """Raises UserError for a file that is there and no HTML page, and for no place to write to."""
    target = Path(path)
    if target.is_dir():
        raise UserError(f"{target} is a folder: a report is one file, such as report.html")
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent} for {target.name}")
    if target.exists() and not overwrite:
        with target.open("rb") as file:
            start = file.read(200).lstrip().lower()
        if start and not start.startswith((b"<!doctype html", b"<html")):
            raise UserError(f"{target} exists and is no HTML page: give the report another name")


def _reads(options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    for file in options.files:
        yield "an input", Path(file)
    if options.diff is not None:
        yield "what --diff compares with", Path(options.diff)
    if options.rewards is not None:
        yield "the file of --rewards", Path(options.rewards)
    for file in options.plugin:
        yield "a plugin", Path(file)


def _writes(options: argparse.Namespace, output: str) -> Iterator[tuple[str, Path]]:
    yield "the output", Path(output)
    yield "the output's summary", beside(output, "summary.json")
    yield "the output's rejects", beside(output, "rejects.jsonl")
    if options.diff is not None:
        yield "the output's differences", beside(output, "diff.jsonl")
    if options.report is not None:
        yield "the report", Path(options.report)


def _is_summary(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(found, dict) and {"run", "rows"} <= found.keys()
