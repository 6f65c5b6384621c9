"""What a chunk has become so far: files in the work folder that a dead process cannot tear.

Lines, records, rejects and errors are appended, then a line in the journal says how long each of
them is: what stands behind that is cut off by whoever goes on. ``.done`` comes last, by renaming.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from rlgym_llm.offline.lines import BadLine

__all__ = [
    "Part",
    "PartDone",
    "Place",
    "Tally",
    "error_kind",
    "finished_parts",
    "part_file",
    "place_of",
    "without_rollout",
]

_KINDS = ("lines", "records", "rejects", "errors")
_MOST_KINDS = 30
_MOST_EXAMPLES = 5
_ROLLOUT = re.compile(r"^reward '[^']*' on rollout (?:'[^']*'|\"[^\"]*\"): ")
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:\.\d+)?")

Tally = dict[str, dict[str, Any]]
"""What went wrong, by kind: ``{count, lines, example}``, the lines of the first few."""


def part_file(folder: Path, name: str, kind: str) -> Path:
    """One of the files of a part: ``lines``, ``records``, ``rejects`` or ``done``."""
    return folder / f"{name}.{kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a chunk is scored: everything before this sample is written."""

    line: int = 0
    """Number of its line in the file; 0 at the beginning."""
    sample: int = 0
    """Which of the samples of that line."""
    ordinal: int = 0
    """How many samples of the chunk are written."""
    careful_to: int = 0
    """Samples before this ordinal are scored one at a time, for one of them killed a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDone:
    """A finished part, in numbers that are few however long the part is."""

    num_rows: int
    num_bytes: int
    rejects: Tally
    errors: dict[str, Tally]
    """By component."""


class Part:
    """Writes the files of one chunk, from where a process before it stopped; a context manager.

    One process at a time: another waits until this one has closed the part or is dead.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._journal = part_file(folder, name, "journal").open("a+b", buffering=0)
        fcntl.flock(self._journal, fcntl.LOCK_EX)
        self._journal.seek(0)
        self.place, sizes = _last_entry(self._journal.read())
        self._files = [part_file(folder, name, kind).open("ab", buffering=0) for kind in _KINDS]
        found = [os.fstat(file.fileno()).st_size for file in self._files]
        if any(size > there for size, there in zip(sizes, found, strict=True)):
            self.place, sizes = Place(), [0] * len(_KINDS)  # somebody cut them: all of it anew
        for file, size in zip(self._files, sizes, strict=True):
            file.truncate(size)
        self._sizes = sizes
        self._lines: list[bytes] = []
        self._records: list[bytes] = []
        self._rejects: list[bytes] = []
        self._errors: list[bytes] = []

    def write(self, line: bytes, record: bytes) -> None:
        """One more row of the output."""
        self._lines.append(line)
        self._records.append(record)

    def reject(self, bad: BadLine) -> None:
        """One more line that was set aside."""
        self._rejects.append(_json_line(asdict(bad)))

    def error(self, line: int, component: str, reason: str) -> None:
        """One more failure of a component."""
        self._errors.append(_json_line({"line": line, "of": component, "reason": reason}))

    def flush(self, place: Place) -> None:
        """Writes what was added, all of it before ``place``."""
        kinds = (self._lines, self._records, self._rejects, self._errors)
        for index, pending in enumerate(kinds):
            if pending:
                data = b"".join(pending)
                _write(self._files[index].fileno(), data)
                self._sizes[index] += len(data)
                pending.clear()
        self.place = place
        entry = [place.line, place.sample, place.ordinal, place.careful_to, *self._sizes]
        _write(self._journal.fileno(), b"%s\n" % json.dumps(entry).encode())

    def finish(self, record_size: int) -> None:
        """Says that the part is whole; what was added must be flushed."""
        done = PartDone(
            num_rows=self._sizes[1] // record_size,
            num_bytes=self._sizes[0],
            rejects=_tally(part_file(self._folder, self._name, "rejects")).get("", {}),
            errors=_tally(part_file(self._folder, self._name, "errors")),
        )
        path = part_file(self._folder, self._name, "done")
        draft = path.with_suffix(".done.tmp")
        draft.write_text(json.dumps(asdict(done)))
        draft.replace(path)
        part_file(self._folder, self._name, "errors").unlink()
        part_file(self._folder, self._name, "journal").unlink()

    def close(self) -> None:
        """Lets go of the files; what was added and not flushed is lost."""
        for file in (*self._files, self._journal):
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def place_of(folder: Path, name: str) -> Place:
    """How far the part is written."""
    try:
        return _last_entry(part_file(folder, name, "journal").read_bytes())[0]
    except FileNotFoundError:
        return Place()


def _last_entry(journal: bytes) -> tuple[Place, list[int]]:
    entries = journal.split(b"\n")[:-1]  # what follows the last \n is torn
    if not entries:
        return Place(), [0] * len(_KINDS)
    try:
        line, sample, ordinal, careful_to, *sizes = json.loads(entries[-1])
    except (ValueError, TypeError):  # no entry of ours: the part is scored anew
        return Place(), [0] * len(_KINDS)
    return Place(line=line, sample=sample, ordinal=ordinal, careful_to=careful_to), sizes


def finished_parts(folder: Path) -> set[str]:
    """The names of the parts that are whole."""
    with os.scandir(folder) as entries:
        return {
            entry.name.removesuffix(".done") for entry in entries if entry.name.endswith(".done")
        }


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _json_line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def error_kind(error: str) -> str:
    """The error without what is particular to its row, so that errors can be counted by kind.

    >>> error_kind("reward 'mine' on rollout '7': ValueError: no number in 'abc'")
    "ValueError: no number in '...'"
    """
    text = without_rollout(error)
    return _PARTICULARS.sub(lambda found: "'...'" if found[0][0] in "'\"" else "N", text)[:120]


def without_rollout(error: str) -> str:
    """The error without the reward and the rollout that it names first."""
    return _ROLLOUT.sub("", error, count=1)


def _tally(path: Path) -> dict[str, Tally]:
    found: dict[str, Tally] = {}
    with path.open("rb") as file:
        for entry in map(json.loads, file):
            kinds = found.setdefault(entry.get("of", ""), {})
            kind = error_kind(entry["reason"])
            if kind not in kinds and len(kinds) >= _MOST_KINDS:
                kind = "others"
            tally = kinds.setdefault(kind, {"count": 0, "lines": [], "example": entry["reason"]})
            tally["count"] += 1
            if len(tally["lines"]) < _MOST_EXAMPLES:
                tally["lines"].append(entry["line"])
    return found
