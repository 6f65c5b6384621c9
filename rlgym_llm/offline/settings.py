"""What a scoring run was asked to do, as plain data that goes to every worker and into a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from rlgym_llm.layouts.layout import Layout
from rlgym_llm.rows.beside import beside

__all__ = ["FileFormat", "InputFile", "OfflineSettings", "OnBadLine", "file_format"]

FileFormat = Literal["jsonl", "parquet"]
OnBadLine = Literal["set-aside", "skip", "error"]


def file_format(path: str | Path) -> FileFormat:
    """How a file is read or written, by its ending: ``.parquet``, or JSON lines.

    >>> file_format("runs/scored.parquet"), file_format("generations.jsonl")
    ('parquet', 'jsonl')
    """
    return "parquet" if Path(path).suffix.lower() in (".parquet", ".pq") else "jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One file to score, as it was when the run began."""

    path: str
    size: int
    """Bytes."""
    mtime_ns: int
    layout: Layout | None
    """Which columns hold what; None where the file holds no row."""
    is_expanded: bool = False
    """Whether rows hold several completions, so that what is written are other rows."""

    @property
    def format(self) -> FileFormat:
        """How it is read."""
        return file_format(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSettings:
    """All that decides what a scoring run writes, and how it goes about it."""

    inputs: tuple[InputFile, ...]
    output: str
    rewards: Mapping[str, Any]
    """The rewards section, as JSON data."""
    plugins: tuple[str, ...] = ()
    """Files that bring plugins."""
    evaluation: bool = False
    """Whether evaluation weights count."""
    step: int | None = None
    """Training step that schedules go by."""
    score_column: str = "rlgym"
    accuracy: str | None = None
    right_from: float = 1.0
    """Raw score of the accuracy component from which an answer is right: the top of its range."""
    """The component that says right or wrong."""
    on_bad_line: OnBadLine = "set-aside"
    limit: int | None = None
    """Lines (of parquet: rows) to read of all files together; None for all."""
    timeout_s: float = 30.0
    """Longest time that one row may take beyond what its rewards allow themselves."""
    memory_mb: int | None = 4096
    """What scoring may take in a worker on top of what the rewards took to set up; MiB."""
    chunk_bytes: int = 1 << 20
    """How much of a file a worker takes at a time."""
    folder: str = ""
    """Where paths that are not absolute start; empty: wherever the process is. A worker is told,
    for a reward may change its directory."""

    @property
    def format(self) -> FileFormat:
        """How the output is written."""
        return file_format(self.output)

    @property
    def work(self) -> Path:
        """The folder of what is not finished yet."""
        return self.at(f"{self.output}.work")

    def at(self, path: str) -> Path:
        """Where a path leads from the folder in which the run was started."""
        return Path(self.folder, path)

    def beside(self, what: str) -> Path:
        """A file beside the output: ``scored.jsonl`` has ``scored.rejects.jsonl``."""
        return beside(self.output, what)

    def to_json(self) -> str:
        """The settings as one JSON text; `from_json` reads it back."""
        return json.dumps(asdict(self), default=sorted)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        data = json.loads(text)
        inputs = tuple(
            InputFile(**{**file, "layout": _layout(file["layout"])}) for file in data["inputs"]
        )
        return cls(**{**data, "inputs": inputs, "plugins": tuple(data["plugins"])})


def _layout(data: Mapping[str, Any] | None) -> Layout | None:
    if data is None:
        return None
    return replace(Layout(**data), needs=frozenset(data["needs"]))
