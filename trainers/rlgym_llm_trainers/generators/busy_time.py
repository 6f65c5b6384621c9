"""How long anything was at work: a stop-watch that several may hold at once."""

from __future__ import annotations

import threading
import time

__all__ = ["BusyTime"]


class BusyTime:
    """Seconds in which at least one was inside; from any thread.

    >>> busy = BusyTime()
    >>> with busy:
    ...     pass
    >>> 0 <= busy.take() < 1
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._since = 0.0
        self._seconds = 0.0

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *error: object) -> None:
        self.end()

    def begin(self) -> None:
        """One more is inside."""
        with self._lock:
            if not self._num_inside:
                self._since = time.monotonic()
            self._num_inside += 1

    def end(self) -> None:
        """One fewer is."""
        with self._lock:
            self._num_inside -= 1
            if not self._num_inside:
                self._seconds += time.monotonic() - self._since

    def take(self) -> float:
        """The seconds since the last time they were taken."""
        with self._lock:
            now = time.monotonic()
            if self._num_inside:
                self._seconds += now - self._since
                self._since = now
            seconds, self._seconds = self._seconds, 0.0
            return seconds
