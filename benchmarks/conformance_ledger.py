"""What a benchmark of conformance keeps: numbers that agree, and those that differ for a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TOLERANCE", "Ledger"]

TOLERANCE = 1e-6
"""Largest difference that counts as none, beside numbers of order 1 or their largest one."""


@dataclass
class Ledger:
    """Comparisons with one peer, line by line as they are settled, and their count at the end.

    A comparison either agrees within `TOLERANCE`, or is an argued deviation: then the numbers must
    differ, and must agree again once the one thing that the argument names is undone. So no
    deviation hides a second one, and none stays listed after the peer has changed.
    """

    peer: str
    arguments: Mapping[str, str]
    """Name of each deviation to its argument in a line; docs/conformance.md has it in full."""
    num_same: int = 0
    num_failed: int = 0
    _agreed: dict[str, tuple[int, float]] = field(default_factory=dict)
    _deviated: dict[str, tuple[float, float]] = field(default_factory=dict)

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        """Both must be the same numbers: values, gradients, whole streams."""
        found = difference(ours, theirs)
        count, largest = self._agreed.get(what, (0, 0.0))
        self._agreed[what] = count + 1, max(largest, found)
        self.num_same += 1
        if not found <= TOLERANCE:
            self._fail(f"{what}: differs by {found:.3g}")

    def deviates(self, name: str, ours: Any, theirs: Any, *, undone: tuple[Any, Any]) -> None:
        """They must differ, and the two of ``undone`` must not."""
        apart, left = difference(ours, theirs), difference(*undone)
        if name not in self.arguments:
            self._fail(f"{name}: has no argument")
        if apart <= TOLERANCE:
            self._fail(f"{name}: no longer differs; take it off the list")
        if not left <= TOLERANCE:
            self._fail(f"{name}: differs by {left:.3g} once its reason is undone")
        before = self._deviated.get(name, (0.0, 0.0))
        self._deviated[name] = max(before[0], apart), max(before[1], left)

    def close(self) -> int:
        """Prints what was found; 1 where anything is unexplained, else 0."""
        for what, (count, largest) in self._agreed.items():
            if largest <= TOLERANCE:
                print(f"ok  {self.peer} {what}: {count} times, largest difference {largest:.1e}")
        for name, (apart, left) in self._deviated.items():
            print(
                f"DEVIATES  {self.peer} {name}: by {apart:.2g} (undone: {left:.1e}): "
                f"{self.arguments.get(name)}"
            )
        for name in self.arguments.keys() - self._deviated.keys():
            self._fail(f"{name}: argued for and never seen")
        print(
            f"{self.peer}: same={self.num_same} deviations={len(self._deviated)} "
            f"unexplained={self.num_failed}",
            flush=True,
        )
        return 1 if self.num_failed else 0

    def _fail(self, words: str) -> None:
        self.num_failed += 1
        print(f"FAILED  {self.peer} {words}", flush=True)


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference over the largest number (at least 1); infinite where one is no number.

    >>> difference([1.0, 2.0], [1.0, 2.5])
    0.2
    """
    import numpy as np

    a, b = _array(ours), _array(theirs)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    if not a.size:
        return 0.0
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


def _array(values: Any) -> Any:
    import numpy as np

    return np.asarray(values.detach() if hasattr(values, "detach") else values, dtype=np.float64)
