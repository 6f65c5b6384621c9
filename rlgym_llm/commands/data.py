"""``rlgym data``: rows between files and layouts."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from rlgym_llm.cli import FAILED, plugin_parser
from rlgym_llm.commands.column_flags import read_mapping
from rlgym_llm.counted import counted
from rlgym_llm.layouts.convert import (
    Conversion,
    ConversionReport,
    OnBadLine,
    Source,
    convert,
)
from rlgym_llm.layouts.layout import FIELDS, LayoutName
from rlgym_llm.layouts.targets import TARGETS
from rlgym_llm.plugins import Plugins
from rlgym_llm.rows.beside import beside
from rlgym_llm.rows.file_format import read_rows
from rlgym_llm.rows.row import Row, RowStream
from rlgym_llm.specs import Kind

__all__ = ["main"]

_EPILOG = """\
Files are JSON lines (.jsonl, .ndjson), JSON arrays (.json) or parquet, the first two also with .gz
or .zst behind; hf:OWNER/NAME[:CONFIG[:SPLIT]] is a set of the hub or its cache. Without --to the
columns stay as they stand. A bad row ends the conversion, unless --on-bad-line says otherwise: then
the exit code is 1 and the rows are told of (skip) or written beside OUT (set-aside)."""

_ADDRESS = re.compile(r"([a-z][a-z0-9]+):(.+)")


def main(argv: Sequence[str]) -> int:
    """Runs ``rlgym data convert``; 1 where rows were left out, else 0. Raises RlgymError."""
    parser = plugin_parser("rlgym data", "Rows between files and layouts.")
    parser.usage = "rlgym data convert [options] IN... OUT"
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("action", choices=("convert",), help="read all of IN, write OUT")
    add("files", nargs="+", metavar="FILE", help="files to read and, last, the one to write")
    add("--to", choices=tuple(TARGETS), help="layout to write")
    layouts = ("auto", *get_args(LayoutName))
    add("--from", dest="layout", choices=layouts, default=None, help="layout of IN")
    add("--map", action="append", default=[], metavar="FIELD=COLUMN", help=f"{', '.join(FIELDS)}")
    add("--on-bad-line", choices=get_args(OnBadLine), default="error", help="default: error")
    add("--batch-rows", type=int, default=1024, help="rows of a parquet row group, at most")
    add("--overwrite", action="store_true", help="replace OUT")
    options = parser.parse_intermixed_args(argv)
    if len(options.files) < 2:
        parser.error("give the files to read and, last, the one to write")
    if options.batch_rows < 1:
        parser.error(f"--batch-rows must be at least 1, got {options.batch_rows}")
    *names, out = options.files
    mapping = read_mapping(options.map)
    asks_for_layout = bool(mapping) or options.layout is not None
    job = Conversion(
        sources=tuple(_source(name, options.plugin) for name in names),
        out=Path(out),
        to=options.to or ("rlgym" if asks_for_layout else None),
        layout=None if options.layout == "auto" else options.layout,
        mapping=mapping,
        on_bad_line=options.on_bad_line,
        batch_rows=options.batch_rows,
        overwrite=options.overwrite,
    )
    report = convert(job, _track if sys.stderr.isatty() else None)
    _tell(job, report)
    return FAILED if report.num_rejects else 0


def _source(name: str, plugin_files: Sequence[str]) -> Source:
    address = _ADDRESS.fullmatch(name)
    if address is None or Path(name).exists():
        return Source(name=name, rows=partial(read_rows, Path(name)))
    plugins = Plugins.discover(plugin_files)
    spec = plugins.get(Kind.ROW_SOURCE, address[1])
    found: Callable[[str], Iterable[Row]] = plugins.load(spec)
    rows = found(address[2])
    return Source(name=name, rows=lambda: _numbered(rows))


def _numbered(rows: Iterable[Row]) -> RowStream:
    yield from enumerate(rows, start=1)


def _tell(job: Conversion, report: ConversionReport) -> None:
    for name, layout in report.layouts.items():
        found = ", ".join(f"{field}={column}" for field, column in layout.columns.items())
        print(f"{name}: {layout.name}" + (f" ({found})" if found else ""))
    print(f"{counted(report.num_rows, 'row')} -> {job.out}")
    if report.json_columns:
        names = ", ".join(report.json_columns)
        print(f"as JSON text, since types differ from row to row: {names}")
    if not report.num_rejects:
        return
    set_aside = beside(job.out, "rejects.jsonl")
    where = f", set aside in {set_aside}" if job.on_bad_line == "set-aside" else ""
    bad = counted(report.num_rejects, "bad row was", "bad rows were")
    print(f"{bad} left out{where}:", file=sys.stderr)
    for told in report.rejects:
        print(f"  {told}", file=sys.stderr)
    if report.num_rejects > len(report.rejects):
        print("  ...", file=sys.stderr)


def _track(rows: Iterable[Any], label: str) -> Iterator[Any]:
    """Passes the rows on under a counter on the terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    looks = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*looks, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)
        for number, row in enumerate(rows, start=1):
            if number % 256 == 0:
                progress.update(task, completed=number)
            yield row
