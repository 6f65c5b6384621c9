"""The names of the files that stand beside an output."""

from __future__ import annotations

from pathlib import Path

__all__ = ["beside"]

_PACKINGS = (".gz", ".zst")


def beside(output: str | Path, what: str) -> Path:
    """The file ``what`` of an output: it stands in place of the output's ending.

    >>> str(beside("runs/scored.jsonl", "summary.json"))
    'runs/scored.summary.json'
    >>> beside("train.jsonl.gz", "rejects.jsonl").name
    'train.rejects.jsonl'
    """
    path = Path(output)
    if path.suffix.lower() in _PACKINGS:
        path = path.with_suffix("")
    return path.with_suffix(f".{what}")
