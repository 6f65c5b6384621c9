"""Finished parts put together into the output, in the order of the input."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from rlgym_llm.offline.part import part_file
from rlgym_llm.offline.settings import OfflineSettings

__all__ = ["JoinedLines", "join_files", "part_names", "write_rejects"]

_AT_ONCE = 1 << 24


def part_names(num_parts: int | None = None) -> Iterator[str]:
    """The names of so many parts, in order; without end where it is not known how many."""
    indices = itertools.count() if num_parts is None else range(num_parts)
    return (f"part-{index:08d}" for index in indices)


class JoinedLines:
    """The lines of finished parts in one file, each part's moved there in its turn.

    A part that is ``.done`` and has no ``.lines`` any more is in the file: behind the last of
    those goes on whoever comes after a dead process. So the lines are on the disk once, and those
    that are moved soon never get there as a part. Where somebody cut the file, the parts that were
    in it are done no more: they are taken out of ``done``, the names of those that are.
    """

    def __init__(self, work: Path, done: set[str]) -> None:
        self._work = work
        self._num_parts, size = 0, 0
        for name in part_names():
            if name not in done or part_file(work, name, "lines").exists():
                break
            size += json.loads(part_file(work, name, "done").read_text())["num_bytes"]
            self._num_parts += 1
        path = self.path(work)
        path.touch()
        self._file = path.open("r+b", buffering=0)
        if os.fstat(self._file.fileno()).st_size < size:
            for name in part_names(self._num_parts):
                done.discard(name)
                part_file(work, name, "done").unlink()
            self._num_parts, size = 0, 0
        self._file.truncate(size)
        self._file.seek(size)

    @staticmethod
    def path(work: Path) -> Path:
        """Where the file is."""
        return work / "output.lines"

    def add(self, name: str, index: int) -> None:
        """Moves the lines of the next part, or does nothing where they are in the file already."""
        if index < self._num_parts:
            return
        path = part_file(self._work, name, "lines")
        with path.open("rb", buffering=0) as part:
            _copy(part, self._file)
        path.unlink()
        self._num_parts += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()


def join_files(paths: Iterable[Path], draft: Path) -> int:
    """Writes the files into ``draft``, one after the other; returns the number of bytes.

    The kernel copies where it can, and shares the blocks where the file system can.
    """
    with draft.open("wb", buffering=0) as out:
        for path in paths:
            with path.open("rb", buffering=0) as part:
                _copy(part, out)
        return out.tell()


def write_rejects(settings: OfflineSettings, num_parts: int) -> None:
    """Writes the file of the lines that were set aside; none where there are none."""
    target = settings.beside("rejects.jsonl")
    paths = [part_file(settings.work, name, "rejects") for name in part_names(num_parts)]
    draft = settings.work / "rejects.tmp"
    if settings.on_bad_line == "set-aside" and join_files(paths, draft):
        draft.replace(target)
    else:
        target.unlink(missing_ok=True)


def _copy(part: BinaryIO, out: BinaryIO) -> None:
    if hasattr(os, "copy_file_range"):
        try:
            while os.copy_file_range(part.fileno(), out.fileno(), _AT_ONCE):
                pass
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        else:
            return
    part.seek(os.lseek(part.fileno(), 0, os.SEEK_CUR))
    shutil.copyfileobj(part, out, _AT_ONCE >> 4)
