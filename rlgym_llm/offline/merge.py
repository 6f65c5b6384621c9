"""Finished parts put together into the output, in the order of the input."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from rlgym_llm.offline.part import part_file
from rlgym_llm.offline.settings import OfflineSettings

__all__ = ["join_files", "part_names", "write_rejects"]

_AT_ONCE = 1 << 24


def part_names(num_parts: int) -> Iterator[str]:
    """The names of so many parts, in order."""
    return (f"part-{index:08d}" for index in range(num_parts))


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
