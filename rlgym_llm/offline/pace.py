"""How many rows to score at once, and how long that may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import Reward
from rlgym_llm.scorers.call import is_batched

__all__ = ["Pace", "Pulse"]

_TARGET_S = 0.25
_MOST_ROWS = 128
_PATIENCE = 20
_USUAL_TIMEOUT_S = 60.0


class Pace:
    """The number of rows in a call, and the time to allow for it beyond that of one row.

    Where every reward judges its rows one by one in this thread, calls begin with one row and grow
    to a quarter of a second, so that a row that hangs is noticed by itself. Otherwise the number
    is fixed: the bits of a batched model's scores depend on what is in its batch.
    """

    def __init__(self, config: RewardsConfig, rewards: Iterable[tuple[str, Reward]]) -> None:
        self.is_steady = False
        self.allowed_s = 0.0
        """Time that rewards outside this thread allow themselves for one row."""
        for name, reward in rewards:
            component = config.components[name]
            if (component.backend or reward.backend) != "inline":
                self.is_steady = True
                limit = component.timeout_s or reward.timeout_s
                self.allowed_s += _USUAL_TIMEOUT_S if limit is None else limit
            elif reward.scope != "sample" or is_batched(reward):
                self.is_steady = True
        self._rows = 1
        self._row_s: float | None = None

    @property
    def needs_trial(self) -> bool:
        """Whether a row must be scored by itself first, to know what a whole call may take."""
        return self.is_steady and not self.allowed_s and self._row_s is None

    @property
    def num_rows(self) -> int:
        """How many rows to take next."""
        return _MOST_ROWS if self.is_steady else self._rows

    def extra_s(self, num_rows: int) -> float:
        """Time to allow a call of so many rows, beyond that of one row."""
        if not self.is_steady or num_rows == 1:
            return self.allowed_s
        return num_rows * (self.allowed_s + _PATIENCE * (self._row_s or 0.0))

    def note(self, num_rows: int, seconds: float) -> None:
        """A call of so many rows took so long."""
        row_s = seconds / max(num_rows, 1)
        self._row_s = row_s if self._row_s is None else 0.5 * (self._row_s + row_s)
        self._rows = max(1, min(_MOST_ROWS, 4 * num_rows, int(_TARGET_S / max(self._row_s, 1e-9))))


class Pulse:
    """Keeps the deadline of a sandbox's call away while its work may go on.

    ``take`` starts the deadline anew. One thread does so while the time that was allowed lasts; it
    starts with the first call that is allowed any.
    """

    def __init__(self, take: Callable[[], None], deadline_s: float) -> None:
        self._take = take
        self._interval_s = min(max(deadline_s / 8, 0.02), 1.0)
        self._taken = 0.0
        self._until = 0.0
        self._thread: threading.Thread | None = None

    def start(self, extra_s: float) -> None:
        """From now on the deadline runs, but not before ``extra_s`` have passed."""
        now = time.monotonic()
        self._until = now + extra_s
        if now - self._taken > 0.02:  # a pipe of few notes holds them
            self._taken = now
            self._take()
        if extra_s and self._thread is None:
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def _beat(self) -> None:
        while True:
            time.sleep(self._interval_s)
            if time.monotonic() < self._until:
                self._take()
