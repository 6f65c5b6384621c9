"""OwnRandom: the global random generators, lent to code that draws from them."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["OwnRandom"]

_LENT = threading.RLock()  # there is one set of global generators, so one borrower at a time


class OwnRandom:
    """The state of ``random``, NumPy's and torch's global generators as one borrower leaves them.

    Within `lent` the generators go on where this borrower left them; after it they are as
    everybody else left them. Borrowers in other threads wait. Plain data: it copies and pickles.

    >>> before = random.getstate()
    >>> mine = OwnRandom(seed=3)
    >>> with mine.lent():
    ...     first = random.random()
    >>> with OwnRandom(seed=3).lent():
    ...     again = random.random()
    >>> first == again, random.getstate() == before
    (True, True)
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.state: dict[str, Any] | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lends the global generators for the time of a ``with`` block."""
        with _LENT:
            everybodys = _states()
            try:
                if self.state is None:
                    _seed(self.seed)
                else:
                    _restore(self.state)
                yield
            finally:
                self.state = _states()
                _restore(everybodys)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if (torch := _torch()) is not None:
        torch.random.default_generator.manual_seed(seed)


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate(), "numpy": np.random.get_state()}
    if (torch := _torch()) is not None:
        states["torch"] = torch.random.get_rng_state()
    return states


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    np.random.set_state(states["numpy"])
    if (torch := _torch()) is not None and "torch" in states:
        torch.random.set_rng_state(states["torch"])


def _torch() -> Any:
    """Torch where somebody has loaded it; nothing here does."""
    return sys.modules.get("torch")
