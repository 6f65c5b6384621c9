"""The folder of an evaluation: what it is an evaluation of, and the rollouts it has so far.

eval.json       the settings; an evaluation goes on only under the same ones
rollouts.jsonl  one rollout a line with its card, batch by batch
timings.jsonl   one batch a line: how long it took
summary.json    the figures, written at the end
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
from rlgym_llm.scores import CardStatus
from rlgym_llm.secrets_mask import mask_secrets
from rlgym_llm.store import RolloutRecord, RolloutWriter, decode_record
from rlgym_llm.types import SCHEMA_VERSION, RolloutStatus
from rlgym_llm_trainers.run_folder import choose_run_folder

__all__ = ["EvalFolder", "choose_eval_folder", "fingerprint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFolder:
    """Where an evaluation writes."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The settings."""
        return self.path / "eval.json"

    @property
    def rollouts(self) -> Path:
        """Every rollout with its card."""
        return self.path / "rollouts.jsonl"

    @property
    def timings(self) -> Path:
        """Seconds and tokens of every batch."""
        return self.path / "timings.jsonl"

    @property
    def summary(self) -> Path:
        """The figures."""
        return self.path / "summary.json"

    @contextmanager
    def claimed(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Holds the folder for one process, as the evaluation under ``settings``.

        Raises UserError where another process holds it, where it cannot be made, and where it
        holds an evaluation under other settings, with the first of the keys that differ.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("ab")
        except OSError as error:
            raise UserError(f"--output {self.path}: cannot be made: {error.strerror}") from error
        with lock:
            _lock(lock.fileno(), self.path)
            self._agree(settings)
            yield

    def records(self) -> Iterator[RolloutRecord]:
        """The stored rollouts, one at a time. Raises DataError for a line that is none."""
        for line, data in self._lines():
            yield _record(data, self.rollouts, line)

    def writer(self) -> RolloutWriter:
        """Appends rollouts; a line that a killed process left unfinished is cut off first."""
        return RolloutWriter(self.rollouts)

    def drop_failed(self) -> int:
        """Takes the rollouts out whose episode or scoring failed; the number of them."""
        num_dropped = 0
        self.writer().close()  # whole lines only
        partial = self.rollouts.with_name("rollouts.jsonl.partial")
        with partial.open("wb") as kept:
            for line, data in self._lines():
                if _has_failed(_record(data, self.rollouts, line)):
                    num_dropped += 1
                else:
                    kept.write(data)
        os.replace(partial, self.rollouts)
        return num_dropped

    def add_timing(self, timing: Mapping[str, float]) -> None:
        """Notes what one batch took."""
        with self.timings.open("a", encoding="utf-8") as file:
            file.write(json.dumps(timing) + "\n")

    def totals(self) -> dict[str, float]:
        """The sum of each key over the batches noted; a torn line counts for nothing."""
        totals: dict[str, float] = {}
        if not self.timings.exists():
            return totals
        for line in self.timings.read_text(encoding="utf-8").splitlines():
            try:
                batch = json.loads(line)
            except ValueError:
                continue
            for key, value in batch.items():
                totals[key] = totals.get(key, 0.0) + value
        return totals

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replaces the figures, whole or not at all."""
        _write_json(self.summary, summary)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        if self.rollouts.exists():
            with self.rollouts.open("rb") as file:
                yield from enumerate(file, start=1)

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
            raise DataError("is no manifest of an evaluation", path=self.manifest) from error
        if version != SCHEMA_VERSION:
            raise DataError(f"unknown schema_version {version!r}", path=self.manifest)
        if shown := differences_text(theirs, ours):
            raise UserError(
                f"--output {self.path}: holds an evaluation under other settings ({shown}); "
                "give the same settings to go on with it, or name a new folder"
            )


def choose_eval_folder(output: str | None, *, name: str) -> EvalFolder:
    """The evaluation's folder, not yet made; with no ``output`` a new one under ``runs/``.

    Raises UserError where the folder holds anything that is no evaluation.
    """
    if output is not None:
        path = Path(output).expanduser()
        leftovers = {".lock", "eval.json.partial"}
        if (path / "eval.json").is_file():
            return EvalFolder(path=path)
        if path.is_dir() and {entry.name for entry in path.iterdir()} <= leftovers:
            return EvalFolder(path=path)
    return EvalFolder(path=choose_run_folder(output, name=f"eval-{name}").path)


def fingerprint(settings: Mapping[str, Any]) -> str:
    """SHA-256 of the settings as JSON, the same for every order of the keys.

    >>> fingerprint({"n": 4, "seed": 0}) == fingerprint({"seed": 0, "n": 4})
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _record(data: bytes, path: Path, line: int) -> RolloutRecord:
    try:
        record = decode_record(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise DataError(f"not a stored rollout ({what})", path=path, line=line) from error
    if record.card is None:
        raise DataError("a rollout without its card", path=path, line=line)
    return record


def _has_failed(record: RolloutRecord) -> bool:
    assert record.card is not None, "checked when it was read"
    is_ok = record.rollout.status is RolloutStatus.OK
    return not is_ok or record.card.status is CardStatus.FAILED_REWARD


def _lock(file: int, path: Path) -> None:
    """Locks for as long as the file is open; the kernel lets go of it when the process dies."""
    try:
        import fcntl
    except ImportError:  # no such thing on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(f"--output {path}: another rlgym eval is writing there") from error
    except OSError:
        return  # a file system without locks


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    partial.write_text(text, encoding="utf-8", errors="surrogatepass")
    os.replace(partial, path)
