"""A folder that goes with its process: removed at its end, or by the next run if it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

__all__ = ["OwnFolder", "remove_leftovers"]

_PREFIX = "rlgym-llm-weights-"


class OwnFolder:
    """A new folder in ``root`` that nobody else writes in.

    This process holds a lock on it for as long as it lives. So a folder without one is a leftover,
    whatever became of its process and whoever has that process's number now. SIGTERM removes it
    too, where nobody else attends to that signal.

    Raises OSError where ``root`` does not allow a folder.
    """

    def __init__(self, root: Path) -> None:
        # Locked before it has its name: another run that looks for leftovers never sees it without.
        hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{os.getpid()}-", dir=root))
        lock = os.open(hidden, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = hidden.with_name(hidden.name[1:])
        hidden.rename(self.path)
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())
        self._on_term = _attend_to_term(self._remove)

    def close(self) -> None:
        """Removes the folder with all that is in it; a second time does nothing."""
        self._remove()
        if self._on_term is not None and signal.getsignal(signal.SIGTERM) is self._on_term:
            with contextlib.suppress(ValueError):  # elsewhere than in the main thread it stays
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def remove_leftovers(root: Path) -> None:
    """Removes folders in ``root`` whose process was killed before it could; others' are left."""
    for folder in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, another user's, or gone meanwhile
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _attend_to_term(remove: Callable[[], object]) -> Callable[..., None] | None:
    """Has SIGTERM, which would end the process on the spot, ``remove`` first and then end it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return None

    def end(signum: int, frame: FrameType | None) -> None:
        remove()
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    signal.signal(signal.SIGTERM, end)
    return end


def _remove(folder: Path, lock: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child's exit removes nothing
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
