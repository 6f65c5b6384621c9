"""The checkpoints of a run: which is the newest whole one, which are kept, who may write there."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlgym_llm.errors import UserError
from rlgym_llm_trainers.training.checkpoint import is_whole

__all__ = ["Checkpoints", "step_of"]

_NAME = re.compile(r"step_(\d+)")
_LOCK = ".lock"


def step_of(folder: Path) -> int | None:
    """The step that a checkpoint's folder is named after, or None for another folder.

    >>> step_of(Path("runs/a/checkpoints/step_20")), step_of(Path("step_20.partial"))
    (20, None)
    """
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


class Checkpoints:
    """The folder ``checkpoints`` of a run, with ``step_20``, ``step_40``, ... in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folder(self, step: int) -> Path:
        """The place of a step's checkpoint."""
        return self.path / f"step_{step}"

    def whole(self) -> list[Path]:
        """Those that hold all that was written, the oldest step first."""
        return [folder for folder in self._all() if is_whole(folder)]

    def broken(self) -> list[Path]:
        """Those that do not: a disk or a copy has lost something of them."""
        return [folder for folder in self._all() if not is_whole(folder)]

    def keep_last(self, count: int) -> None:
        """Deletes the older ones of those that are whole."""
        for folder in self.whole()[:-count]:
            going = folder.with_name(folder.name + ".partial")  # a kill leaves half of it
            shutil.rmtree(going, ignore_errors=True)
            with suppress(OSError):
                os.replace(folder, going)
            shutil.rmtree(going, ignore_errors=True)

    def remove_unfinished(self) -> None:
        """Deletes what a killed run was about to write or delete; nothing else has such a name."""
        for end in ("partial", "old"):
            for folder in self.path.glob(f"step_*.{end}"):
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder, for this process alone. Raises UserError where another one is at work.

        The lock is the operating system's, and goes with the process, however that ends. UserError
        too where the folder cannot be written or locked.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / _LOCK).open("w")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                reason = f"{self.path} cannot be locked: {error.strerror}; name a folder elsewhere"
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    reason = "another run is writing there; wait for it, or name a new folder"
                raise UserError(f"--output {self.path.parent}: {reason}") from error
            yield

    def give_up(self) -> None:
        """Removes the folder again, inside the lock, where it holds no checkpoint."""
        with suppress(OSError):
            (self.path / _LOCK).unlink()
            self.path.rmdir()

    def _all(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        steps = {step_of(folder): folder for folder in self.path.iterdir()}
        return [steps[step] for step in sorted(step for step in steps if step is not None)]
