"""What was made of data files once, kept for the next environment of this process."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["cached", "clear", "file_key"]

_T = TypeVar("_T")

_MOST = 32
_kept: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def cached(key: Hashable, make: Callable[[], _T]) -> _T:
    """What ``make()`` gave for this key before, or gives now; the last 32 keys are kept.

    What it gives is shared, so nobody may change it. A key that cannot be hashed is not kept, and
    what ``make`` raises is raised every time. Two threads that ask at once may both make it, and
    both get the same.

    >>> cached(("doctest", 1), lambda: [5]) is cached(("doctest", 1), lambda: [5])
    True
    """
    try:
        hash(key)
    except TypeError:
        return make()
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            found: _T = _kept[key]
            return found
    made = make()
    with _lock:
        found = _kept.setdefault(key, made)
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return found


def file_key(path: str | Path) -> tuple[int, int, int, int]:
    """A key of a file's content: device and inode, time of change, and size.

    Raises OSError for a file that is not there.
    """
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def clear() -> None:
    """Forgets everything; for tests."""
    with _lock:
        _kept.clear()
