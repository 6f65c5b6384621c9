"""The files of a command that collects rollouts: what it goes on from, and what it has so far.

manifest   the settings; the command goes on only under the same ones
rollouts   one rollout a line, with its card where it is scored, as soon as it is there
timings    one line for each time that rollouts were saved: how long they took
summary    the figures, written at the end
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlgym_llm.differences import differences_text
from rlgym_llm.errors import DataError, UserError
from rlgym_llm.plugin_sources import own_version
from rlgym_llm.rows.writing import writing
from rlgym_llm.scores import CardStatus
from rlgym_llm.secrets_mask import mask_secrets
from rlgym_llm.store import RolloutRecord, RolloutWriter, decode_record
from rlgym_llm.types import SCHEMA_VERSION, RolloutStatus

__all__ = ["RolloutFiles", "fingerprint", "has_failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFiles:
    """Where one command writes, and how it calls itself and what it holds in its errors."""

    output: Path
    """What ``--output`` names, for errors: a folder or a file."""
    rollouts: Path
    manifest: Path
    timings: Path
    summary: Path
    lock: Path
    command: str
    """Such as ``rlgym eval``."""
    holds: str
    """Such as ``an evaluation``."""
    is_scored: bool
    """Whether every rollout has its card."""

    @contextmanager
    def claimed(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Holds the files for one process, under ``settings``.

        Raises UserError where another process holds them, where they cannot be made, and where they
        were made under other settings, with the first of the keys that differ.
        """
        try:
            self.rollouts.parent.mkdir(parents=True, exist_ok=True)
            lock = self.lock.open("ab")
        except OSError as error:
            raise UserError(f"--output {self.output}: cannot be made: {error.strerror}") from error
        with lock:
            self._lock(lock.fileno())
            self._agree(settings)
            yield

    def records(self) -> Iterator[RolloutRecord]:
        """The stored rollouts, one at a time. Raises DataError for a line that is none."""
        for line, data in self._lines():
            yield self._record(data, line)

    def writer(self) -> RolloutWriter:
        """Appends rollouts; a line that a killed process left unfinished is cut off first."""
        return RolloutWriter(self.rollouts)

    def drop_failed(self) -> int:
        """Takes the rollouts out whose episode or scoring failed; the number of them."""
        num_dropped = 0
        self.writer().close()  # whole lines only
        partial = self.rollouts.with_name(self.rollouts.name + ".partial")
        with writing(partial), partial.open("wb") as kept:
            for line, data in self._lines():
                if has_failed(self._record(data, line)):
                    num_dropped += 1
                else:
                    kept.write(data)
        os.replace(partial, self.rollouts)
        return num_dropped

    def add_timing(self, timing: Mapping[str, float]) -> None:
        """Notes what the rollouts that were just saved took."""
        with writing(self.timings), self.timings.open("a", encoding="utf-8") as file:
            file.write(json.dumps(timing) + "\n")

    def totals(self) -> dict[str, float]:
        """The sum of each key over the timings noted; a torn line counts for nothing."""
        totals: dict[str, float] = {}
        if not self.timings.exists():
            return totals
        for line in self.timings.read_text(encoding="utf-8").splitlines():
            try:
                noted = json.loads(line)
            except ValueError:
                continue
            for key, value in noted.items():
                totals[key] = totals.get(key, 0.0) + value
        return totals

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replaces the figures, whole or not at all."""
        _write_json(self.summary, summary)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        if self.rollouts.exists():
            with self.rollouts.open("rb") as file:
                yield from enumerate(file, start=1)

    def _record(self, data: bytes, line: int) -> RolloutRecord:
        try:
            record = decode_record(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"not a stored rollout ({type(error).__name__}: {error})"
            raise DataError(what, path=self.rollouts, line=line) from error
        if self.is_scored and record.card is None:
            raise DataError("a rollout without its card", path=self.rollouts, line=line)
        return record

    def _agree(self, settings: Mapping[str, Any]) -> None:
        ours = json.loads(json.dumps(mask_secrets(dict(settings))))
        if not self.manifest.exists():
            _write_json(
                self.manifest,
                {
                    "schema_version": SCHEMA_VERSION,
                    "rlgym_llm": own_version(),
                    "fingerprint": fingerprint(ours),
                    "settings": ours,
                },
            )
            return
        try:
            stored = json.loads(self.manifest.read_text(encoding="utf-8"))
            theirs, version = stored["settings"], stored["schema_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"is no manifest of {self.holds}", path=self.manifest) from error
        if version != SCHEMA_VERSION:
            raise DataError(f"unknown schema_version {version!r}", path=self.manifest)
        if shown := differences_text(theirs, ours):
            raise UserError(
                f"--output {self.output}: holds {self.holds} under other settings ({shown}); "
                "give the same settings to go on with it, or name a new "
                f"{'folder' if self.output.is_dir() else 'file'}"
            )

    def _lock(self, file: int) -> None:
        """Locks for as long as the file is open; the kernel lets go of it when its process dies."""
        try:
            import fcntl
        except ImportError:  # no such thing on Windows
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"--output {self.output}: another {self.command} is writing there"
            ) from error
        except OSError:
            return  # a file system without locks


def fingerprint(settings: Mapping[str, Any]) -> str:
    """SHA-256 of the settings as JSON, the same for every order of the keys.

    >>> fingerprint({"n": 4, "seed": 0}) == fingerprint({"seed": 0, "n": 4})
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def has_failed(record: RolloutRecord) -> bool:
    """Whether the episode failed, or a reward on it."""
    if record.rollout.status is not RolloutStatus.OK:
        return True
    return record.card is not None and record.card.status is CardStatus.FAILED_REWARD


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        with writing(path):
            partial.write_text(text, encoding="utf-8", errors="surrogatepass")
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
